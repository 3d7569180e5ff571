// The pattern of Split and Replace: a literal text or a regex.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/regex/regex.h"

namespace millrace {

class Pattern {
 public:
  static Pattern text(std::string text) { return Pattern(std::move(text)); }
  static Pattern regex(std::string_view pattern) { return Pattern(Regex(pattern)); }

  void find_all(std::string_view text, FunctionRef<void(size_t begin, size_t end)> visit) const {
    if (regex_) return regex_->find_all(text, visit);
    for (size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size())) {
      visit(at, at + text_.size());
    }
  }

 private:
  explicit Pattern(std::string text) : text_(std::move(text)) {
    if (text_.empty()) regex_.emplace("");  // matches between all characters
  }
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}

  std::string text_;
  std::optional<Regex> regex_;
};

}  // namespace millrace
