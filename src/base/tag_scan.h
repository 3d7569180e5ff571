// Finds a fixed tag in text that arrives byte by byte.
#pragma once

#include <string_view>

namespace millrace {

// The first byte of the tag must not recur inside it: then a mismatch can only start a new match at the current byte.
class TagScan {
 public:
  explicit constexpr TagScan(std::string_view tag) : tag_(tag) {}

  enum class Step { Outside, Partial, Found };
  // Outside: the byte belongs to no match, and neither do the bytes `held` before it, which the caller emits first.
  Step take(char byte) {
    broken_ = 0;
    if (byte != tag_[matched_]) {
      broken_ = matched_;
      matched_ = 0;
    }
    if (byte != tag_[matched_]) return Step::Outside;
    if (++matched_ < tag_.size()) return Step::Partial;
    matched_ = 0;
    return Step::Found;
  }
  // The tag's prefix that the last byte turned into plain text.
  std::string_view released() const { return tag_.substr(0, broken_); }
  bool empty() const { return matched_ == 0; }  // no bytes are held back
  // Returns the bytes held back and forgets them.
  std::string_view drop() {
    const std::string_view held = tag_.substr(0, matched_);
    matched_ = 0;
    return held;
  }

 private:
  std::string_view tag_;
  size_t matched_ = 0, broken_ = 0;
};

}  // namespace millrace
