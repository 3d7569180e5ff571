#include "text/jinja/value/text_builder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "text/jinja/template_error.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {

TextBuilder& TextBuilder::append(size_t count, std::string_view text) {
  if (text.empty() || count == 0) return *this;
  constexpr size_t kAny = std::numeric_limits<uint32_t>::max();
  reserve(std::min(count, kAny) * std::min(text.size(), kAny));
  for (size_t i = 0; i < count; ++i) text_.append(text);
  return *this;
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  // memmem is linear. std::string::find takes quadratic time on adversarial texts.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  const size_t end = found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
  Budget::spend(static_cast<int64_t>((end - from) / 64 + 1));
  return found ? end : std::string_view::npos;
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string wanted_backwards(wanted.rbegin(), wanted.rend());
  const size_t found = find_text(backwards, wanted_backwards);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t at_most) {
  if (at_most < 0) at_most = std::numeric_limits<int64_t>::max();
  TextBuilder out;
  size_t at = 0;
  for (; at_most > 0; --at_most) {
    if (from.empty()) {
      // In front of every character and once at the end.
      out.append(to);
      if (at == text.size()) break;
      const size_t start = at;
      next_code_point(text, at);
      out.append(text.substr(start, at - start));
      Budget::spend();
      continue;
    }
    const size_t found = find_text(text, from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at)).take();
}

}  // namespace millrace::jinja
