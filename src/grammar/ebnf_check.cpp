#include "grammar/ebnf_check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kDeepestEbnfGroup = 64;
constexpr int64_t kMostEbnfRepeats = 10000;
constexpr int64_t kMostEbnfParts = 50000;  // of all rules, repetitions unrolled

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void scan() {
    if (text_.find('\0') != std::string_view::npos) refuse("has a zero byte");
    while (at_ < text_.size()) step();
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n');
    fail(ErrorKind::Usage, "the grammar {} (line {})", what, line);
  }

  void step() {
    const char c = text_[at_++];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '\'') {
      skip_to(c);
    } else if (c == '[') {
      skip_to(']');
    } else if (c == '(') {
      groups_.push_back(size_);
      if (groups_.size() > kDeepestEbnfGroup) refuse("has groups nested too deep");
    } else if (c == ')') {
      if (groups_.empty()) refuse("closes a group that was not opened");
      inside_ = size_ - groups_.back();
      groups_.pop_back();
    } else if (c == '{') {
      repeat();
    }
    ++size_;
    if (c != ')' && c != ' ') inside_ = 1;
    if (size_ > kMostEbnfParts) refuse("is too large: its repetitions unroll to more than 50000 parts");
  }

  void skip_to(char end) {
    while (at_ < text_.size() && text_[at_] != end) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) refuse("has a string or class without end");
    ++at_;
  }

  void repeat() {
    int64_t most = 0, value = 0;
    while (at_ < text_.size() && text_[at_] != '}') {
      const char c = text_[at_++];
      value = is_ascii_digit(c) ? value * 10 + (c - '0') : 0;
      most = std::max(most, value);
      if (most > kMostEbnfRepeats) refuse("repeats something more than 10000 times");
    }
    size_ += std::min(inside_ * std::max<int64_t>(most, 1), kMostEbnfParts + 1);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<int64_t> groups_;
  int64_t size_ = 0;    // parts so far, repetitions unrolled
  int64_t inside_ = 1;  // parts of the group that was just closed
};

}  // namespace

void check_ebnf(std::string_view ebnf) { Scanner(ebnf).scan(); }

}  // namespace millrace
