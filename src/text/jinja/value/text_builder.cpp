#include "text/jinja/value/text_builder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {

TextBuilder& TextBuilder::append(size_t count, std::string_view text) {
  if (text.empty() || count == 0) return *this;
  constexpr size_t kAny = std::numeric_limits<uint32_t>::max();
  reserve(std::min(count, kAny) * std::min(text.size(), kAny));
  for (size_t i = 0; i < count; ++i) text_.append(text);
  return *this;
}

TextBuilder& TextBuilder::append_value(const Value& value) {
  if (value.is_string()) return append_piece(value, value.str());
  return append_content(to_text(value), has_content(value));
}

TextBuilder& TextBuilder::append_piece(const Value& whole, std::string_view part) {
  const Text& text = whole.text();
  if (text.content && !part.empty()) {
    const auto begin = static_cast<size_t>(part.data() - text.bytes.data());
    append_ranges(*text.content, begin, begin + part.size(), text_.size(), content_);
  }
  return append(part);
}

TextBuilder& TextBuilder::append_content(std::string_view text, bool is_content) {
  if (is_content && !text.empty()) append_ranges({{0, text.size()}}, 0, text.size(), text_.size(), content_);
  return append(text);
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

Value replace_text(const Value& whole, std::string_view from, const Value& to, int64_t at_most) {
  const std::string_view text = whole.str();
  if (at_most < 0) at_most = std::numeric_limits<int64_t>::max();
  TextBuilder out;
  size_t at = 0;
  for (; at_most > 0; --at_most) {
    if (from.empty()) {
      // In front of every character and once at the end.
      out.append_value(to);
      if (at == text.size()) break;
      const size_t start = at;
      next_code_point(text, at);
      out.append_piece(whole, text.substr(start, at - start));
      Budget::spend();
      continue;
    }
    const size_t found = find_text(text, from, at);
    if (found == std::string_view::npos) break;
    out.append_piece(whole, text.substr(at, found - at)).append_value(to);
    at = found + from.size();
  }
  return out.append_piece(whole, text.substr(at)).take_value(whole.is_markup());
}

}  // namespace millrace::jinja
