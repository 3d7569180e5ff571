// Walks through the characters of a regex, and refuses it with a message that quotes it.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {
    if (!is_valid_utf8(pattern)) fail(ErrorKind::BadFile, "the tokenizer has a regex that is not UTF-8");
  }

  bool at_end() const { return position_ == pattern_.size(); }
  size_t position() const { return position_; }
  void rewind(size_t position) { position_ = position; }
  void skip(size_t bytes) { position_ += bytes; }

  char32_t peek() const { return at_end() ? 0 : decode_utf8(pattern_.data() + position_).code; }
  char32_t take() {
    if (at_end()) refuse("ends too early");
    const Character c = decode_utf8(pattern_.data() + position_);
    position_ += c.length;
    return c.code;
  }
  bool accept(char32_t wanted) {
    if (at_end() || peek() != wanted) return false;
    take();
    return true;
  }
  bool starts_with(std::string_view text) const { return pattern_.substr(position_).starts_with(text); }

  // Decimal digits, if there are any.
  std::optional<int> number(int largest) {
    std::optional<int> value;
    while (!at_end() && peek() >= '0' && peek() <= '9') {
      value = value.value_or(0) * 10 + static_cast<int>(take() - '0');
      if (*value > largest) refuse("counts too far");
    }
    return value;
  }

  // Up to `most` digits of base 8 or 16.
  std::optional<char32_t> digits(int base, int most) {
    std::optional<char32_t> value;
    for (int i = 0; i < most && !at_end(); ++i) {
      const char32_t c = peek();
      const int digit = c >= '0' && c <= '9'                 ? static_cast<int>(c - '0')
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? static_cast<int>((c | 32) - 'a') + 10
                                                             : 99;
      if (digit >= base) break;
      value = value.value_or(0) * base + static_cast<char32_t>(digit);
      take();
    }
    return value;
  }

  [[noreturn]] void refuse(std::string_view why) const {
    constexpr size_t kShown = 200;
    fail(ErrorKind::Unsupported, "the tokenizer's regex '{}{}' {}", pattern_.substr(0, kShown),
         pattern_.size() > kShown ? "..." : "", why);
  }

 private:
  std::string_view pattern_;
  size_t position_ = 0;
};

}  // namespace millrace
