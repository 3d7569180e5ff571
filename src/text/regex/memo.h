// Memo of the matcher: (choice, position) pairs that fail, or that succeed with a known end.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace millrace {

class RegexMemo {
 public:
  static constexpr uint32_t kUnknown = 0, kFails = 1;  // other values are successes, see end_of()

  RegexMemo(const std::vector<bool>& inner_states, size_t text_size)
      : inner_(inner_states), positions_(text_size + 1), ends_(inner_.size()), failures_(inner_.size()) {}

  uint32_t outcome(int32_t state, size_t position) const {
    if (inner_[state]) return ends_[state].empty() ? kUnknown : ends_[state][position];
    return !failures_[state].empty() && failures_[state][position] ? kFails : kUnknown;
  }
  static size_t end_of(uint32_t outcome) { return outcome - 2; }

  void fails(int32_t state, size_t position) {
    if (inner_[state]) {
      ends(state)[position] = kFails;
    } else {
      if (failures_[state].empty()) reserve(positions_ / 8), failures_[state].resize(positions_);
      failures_[state][position] = true;
    }
  }

  // Called only inside lookarounds and atomic groups: elsewhere a success ends the whole match.
  void succeeds(int32_t state, size_t position, size_t end) { ends(state)[position] = static_cast<uint32_t>(end) + 2; }

 private:
  std::vector<uint32_t>& ends(int32_t state) {
    if (ends_[state].empty()) reserve(positions_ * sizeof(uint32_t)), ends_[state].resize(positions_);
    return ends_[state];
  }

  void reserve(size_t bytes) {
    constexpr size_t kMost = size_t{1} << 30;
    bytes_ += bytes;
    if (bytes_ > kMost) fail(ErrorKind::Unsupported, "a regex of the tokenizer is too complex for a text this long");
  }

  const std::vector<bool>& inner_;
  size_t positions_, bytes_ = 0;
  std::vector<std::vector<uint32_t>> ends_;
  std::vector<std::vector<bool>> failures_;
};

}  // namespace millrace
