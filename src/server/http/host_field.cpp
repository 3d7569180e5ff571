#include "server/http/host_field.h"

#include <algorithm>

#include "base/ascii.h"

namespace millrace {
namespace {

bool is_hex(char c) { return is_ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f'); }

bool is_name_char(char c) {
  return is_ascii_alnum(c) || std::string_view("-._~!$&'()*+,;=").find(c) != std::string_view::npos;
}

bool is_name(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (is_name_char(name[i])) continue;
    const bool escaped = name[i] == '%' && i + 2 < name.size() && is_hex(name[i + 1]) && is_hex(name[i + 2]);
    if (!escaped) return false;
    i += 2;
  }
  return true;
}

}  // namespace

bool is_host_field(std::string_view value) {
  const bool literal = value.starts_with('[');
  const size_t end = literal ? value.find(']') : value.find(':');
  if (literal && end == std::string_view::npos) return false;
  std::string_view host = value.substr(0, end);
  std::string_view port = value.substr(std::min(literal ? end + 1 : end, value.size()));
  if (!port.empty()) {
    if (port.front() != ':') return false;
    port.remove_prefix(1);
    if (!std::all_of(port.begin(), port.end(), is_ascii_digit)) return false;
  }
  if (!literal) return is_name(host);
  host.remove_prefix(1);
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) { return c == ':' || is_name_char(c); });
}

}  // namespace millrace
