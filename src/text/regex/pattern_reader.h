// Reads the characters of a regular expression, and reports errors as the dialect does.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "text/regex/syntax.h"
#include "text/unicode/utf8.h"

namespace millrace {

class PatternReader {
 public:
  PatternReader(std::string_view pattern, RegexDialect dialect) : pattern_(pattern), dialect_(dialect) {
    if (is_valid_utf8(pattern)) return;
    if (is_ecma()) fail(ErrorKind::Usage, "the regular expression is not valid UTF-8");
    fail(ErrorKind::BadFile, "the tokenizer has a regex that is not UTF-8");
  }

  bool is_ecma() const { return dialect_ == RegexDialect::Ecma; }

  bool at_end() const { return position_ == pattern_.size(); }
  size_t position() const { return position_; }
  void rewind(size_t position) { position_ = position; }
  void skip(size_t bytes) { position_ += bytes; }

  char32_t peek() const { return at_end() ? 0 : decode_utf8(pattern_.data() + position_).code; }
  char32_t take() {
    if (at_end()) refuse("ends too early");
    return next_utf8(pattern_, position_);
  }
  bool accept(char32_t wanted) {
    if (at_end() || peek() != wanted) return false;
    take();
    return true;
  }
  bool accept(std::string_view wanted) {
    if (!starts_with(wanted)) return false;
    skip(wanted.size());
    return true;
  }
  bool starts_with(std::string_view text) const { return pattern_.substr(position_).starts_with(text); }

  // Decimal digits, if there are any.
  std::optional<int64_t> number(int64_t largest) {
    std::optional<int64_t> value;
    while (!at_end() && peek() >= '0' && peek() <= '9') {
      value = value.value_or(0) * 10 + static_cast<int64_t>(take() - '0');
      if (*value > largest) refuse("counts too far");
    }
    return value;
  }

  // From `least` to `most` digits of base 8 or 16; nullopt: there are fewer.
  std::optional<char32_t> digits(int base, int least, int most) {
    char32_t value = 0;
    int count = 0;
    for (; count < most && !at_end(); ++count) {
      const char32_t c = peek();
      const int digit = c >= '0' && c <= '9'                 ? static_cast<int>(c - '0')
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? static_cast<int>((c | 32) - 'a') + 10
                                                             : 99;
      if (digit >= base) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
      take();
    }
    return count < least ? std::nullopt : std::optional(value);
  }

  // `why` goes on after "the regex": "has an unmatched )".
  [[noreturn]] void refuse(std::string_view why) const {
    constexpr size_t kShown = 200;
    if (is_ecma())
      fail(ErrorKind::Usage, "the regular expression {} at character {}", why,
           count_characters(pattern_.substr(0, position_)) + 1);
    fail(ErrorKind::Unsupported, "the regex '{}{}' {}", pattern_.substr(0, kShown),
         pattern_.size() > kShown ? "..." : "", why);
  }

 private:
  std::string_view pattern_;
  RegexDialect dialect_;
  size_t position_ = 0;
};

}  // namespace millrace
