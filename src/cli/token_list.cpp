#include "cli/token_list.h"

#include <charconv>
#include <limits>

#include "base/error.h"

namespace millrace {

std::vector<int32_t> parse_int_list(const std::string& flag, const std::string& text, int32_t least, int32_t most) {
  std::vector<int32_t> values;
  for (const char *at = text.data(), *end = at + text.size(); at <= end;) {
    int32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ','))
      fail(ErrorKind::Usage, "{} {}: expected integers separated by commas", flag, text);
    if (value < least || value > most)
      fail(ErrorKind::Usage, "{}: {} is not between {} and {}", flag, value, least, most);
    values.push_back(value);
    at = next + 1;
  }
  return values;
}

std::vector<int32_t> parse_token_list(const std::string& text, int64_t vocab) {
  if (text.empty()) return {};
  const auto most = vocab > 0 ? static_cast<int32_t>(vocab - 1) : std::numeric_limits<int32_t>::max();
  return parse_int_list("--tokens", text, 0, most);
}

}  // namespace millrace
