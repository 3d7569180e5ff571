// Finds a fixed tag in a text that comes byte by byte.
#pragma once

#include <string_view>

namespace millrace {

// The first byte of a tag must not come again inside of it: then a mismatch can only begin a new match at its own byte.
class TagScan {
 public:
  explicit constexpr TagScan(std::string_view tag) : tag_(tag) {}

  enum class Step { Outside, Partial, Found };
  // Outside: the byte belongs to no match, and neither does what was `held` before it (the caller gives that out
  // first).
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
  // The beginning of the tag that turned out to be plain text at the last byte.
  std::string_view released() const { return tag_.substr(0, broken_); }
  bool empty() const { return matched_ == 0; }  // nothing is held back
  // What is held back now; empty afterwards.
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
