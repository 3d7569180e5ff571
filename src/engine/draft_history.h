// Acceptance of a sequence's drafts so far. The lengths of its next drafts depend on this and on the plans, never on
// the clock, so that a repeated request takes the same steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "engine/drafter.h"

namespace millrace {

class DraftHistory {
 public:
  // The probability that the next draft token is right, if all before it are.
  double chance() const { return (right_ + kPrior * kPriorWeight) / (tried_ + kPriorWeight); }

  // Whether step number `step` should look for drafts. Where steps run ahead, a step with drafts cannot; where heads
  // draft, the logits of each first token take time. So a sequence without useful drafts looks for them in every eighth
  // step only. All such sequences look in the same steps.
  bool due(int64_t step) const { return step % pause_ == 0; }

  // A drafter that follows sequences costs time in every step, so it leaves a sequence that has no drafts for so long.
  bool gave_up() const { return idle_ >= kMostIdle; }

  // The probability that each alternative to the first draft token is right, if that token and all alternatives before
  // it are wrong.
  std::array<double, kMostBranches> other_chances() const {
    std::array<double, kMostBranches> chances;
    for (size_t i = 0; i < chances.size(); ++i)
      chances[i] = (others_[i].right + kOtherPrior * kPriorWeight) / (others_[i].tried + kPriorWeight);
    return chances;
  }

  // The first draft token was wrong, and `token` was right. Counts all alternatives that the drafter named, whether
  // their branches were verified or not.
  void record_others(std::span<const int32_t> alternatives, int32_t token) {
    for (size_t rank = 0; rank < std::min(alternatives.size(), others_.size()); ++rank) {
      Other& other = others_[rank];
      const bool right = alternatives[rank] == token;
      other.right = kFade * other.right + (right ? 1 : 0);
      other.tried = kFade * other.tried + 1;
      if (right) return;
    }
  }

  // After a step: `drafted` tokens of the chain that gave the answer were verified, `accepted` of them were right.
  // `branched`: its first token was an alternative (record_others), so the first draft token was wrong.
  void record(int32_t drafted, int32_t accepted, bool branched = false) {
    // Old results fade, so that a text that begins to repeat itself is noticed. Without drafts they fade slowly: a
    // text whose drafts are wrong then tries again after a hundred tokens or so.
    const double fade = drafted > 0 ? kFade : kSlowFade;
    right_ = fade * right_ + accepted - (branched ? 1 : 0);
    tried_ = fade * tried_ + std::min(drafted, accepted + 1);
    idle_ = drafted > 0 ? 0 : idle_ + 1;
    pause_ = drafted > 0 ? 1 : std::min(2 * pause_, kLongestPause);
  }

 private:
  struct Other {
    double right = 0, tried = 0;
  };
  static constexpr double kPrior = 0.5, kOtherPrior = 0.3, kPriorWeight = 2, kFade = 0.9, kSlowFade = 0.99;
  static constexpr int64_t kLongestPause = 8;  // steps
  double right_ = 0, tried_ = 0;
  std::array<Other, kMostBranches> others_;
  static constexpr int32_t kMostIdle = 256;  // steps; the history fades within about a hundred
  int64_t pause_ = 1;
  int32_t idle_ = 0;
};

}  // namespace millrace
