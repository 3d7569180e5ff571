// Acceptance of a sequence's drafts so far. The lengths of its next drafts depend on this and on the plans, never on
// the clock, so that a repeated request takes the same steps.
#pragma once

#include <algorithm>
#include <cstdint>

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

  // After a step: `drafted` tokens were verified, `accepted` of them were right.
  void record(int32_t drafted, int32_t accepted) {
    // Old results fade, so that a text that begins to repeat itself is noticed. Without drafts they fade slowly: a
    // text whose drafts are wrong then tries again after a hundred tokens or so.
    const double fade = drafted > 0 ? kFade : kSlowFade;
    right_ = fade * right_ + accepted;
    tried_ = fade * tried_ + std::min(drafted, accepted + 1);
    idle_ = drafted > 0 ? 0 : idle_ + 1;
    pause_ = drafted > 0 ? 1 : std::min(2 * pause_, kLongestPause);
  }

 private:
  static constexpr double kPrior = 0.5, kPriorWeight = 2, kFade = 0.9, kSlowFade = 0.99;
  static constexpr int64_t kLongestPause = 8;  // steps
  double right_ = 0, tried_ = 0;
  static constexpr int32_t kMostIdle = 256;  // steps; the history fades within about a hundred
  int64_t pause_ = 1;
  int32_t idle_ = 0;
};

}  // namespace millrace
