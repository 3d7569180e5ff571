// Test drafters that know the texts generated without drafts, and guess right or wrong on purpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "engine/drafter.h"

namespace millrace {

class KnownTexts : public SequenceDrafter {
 public:
  enum class Kind : uint8_t {
    Right,
    Wrong,      // in every token
    HalfRight,  // each token at random, drafts of random length
    TooLong,    // right, then continues past the end of the text
    Invalid,    // right, then tokens outside the vocabulary
    None,       // no guess
  };
  static constexpr Kind kAll[] = {Kind::Right, Kind::Wrong, Kind::HalfRight, Kind::TooLong, Kind::Invalid, Kind::None};

  KnownTexts(Kind kind, int32_t vocab) : kind_(kind), vocab_(vocab) {}
  void know(std::vector<int32_t> text) { texts_.push_back(std::move(text)); }  // prompt and answer

  // Random numbers depend on the tokens so far, so the same history gives the same draft.
  int32_t draft(std::span<const int32_t> tokens, std::span<int32_t> draft) override {
    asked_ += 1;
    longest_asked_ = std::max(longest_asked_, draft.size());
    const std::vector<int32_t>* text = find(tokens);
    if (text == nullptr || kind_ == Kind::None) return 0;
    const auto chance = philox(tokens.size(), static_cast<uint64_t>(tokens.back()));
    const size_t most = kind_ == Kind::HalfRight ? chance[0] % (draft.size() + 1) : draft.size();
    for (size_t i = 0; i < most; ++i) {
      const size_t at = tokens.size() + i;
      const bool ends = at >= text->size();
      if (ends && kind_ != Kind::TooLong) return static_cast<int32_t>(i);
      const int32_t right = ends ? static_cast<int32_t>(at) % vocab_ : (*text)[at];
      const bool wrong = kind_ == Kind::Wrong || (kind_ == Kind::HalfRight && (chance[1] >> i & 3) == 0);
      draft[i] = kind_ == Kind::Invalid && i > 0 ? (i % 2 == 0 ? -5 : vocab_ + 3)
                 : wrong                         ? (right + 1) % vocab_
                                                 : right;
    }
    return static_cast<int32_t>(most);
  }

  int64_t asked() const { return asked_; }
  size_t longest_asked() const { return longest_asked_; }

 private:
  const std::vector<int32_t>* find(std::span<const int32_t> tokens) const {
    for (const auto& text : texts_) {
      if (text.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin())) return &text;
    }
    return nullptr;
  }

  Kind kind_;
  int32_t vocab_;
  std::vector<std::vector<int32_t>> texts_;
  int64_t asked_ = 0;
  size_t longest_asked_ = 0;
};

}  // namespace millrace
