// How many draft tokens of each sequence a step verifies: as many as give the most accepted tokens per second over all
// sequences, by the planned cost of a step and the sequences' histories.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"

namespace millrace {

// A sequence's draft: its length, and the probability of each token to be right if all before it are.
struct DraftOffer {
  int32_t tokens = 0;
  double chance = 0;
};

// All drafts of a step.
struct DraftedRows {
  int64_t tokens = 0;     // draft tokens of all sequences
  int64_t sequences = 0;  // sequences with a draft
  int64_t longest = 0;    // tokens of the longest draft
};

class DraftPlan {
 public:
  void reserve(size_t sequences, size_t rows);  // choose() then allocates nothing

  struct Limits {
    int64_t sequences = 0;  // generating ones: rows of the step without drafts
    int64_t tokens = 0;     // draft tokens, at most
    double margin = 0;      // drafts must raise the rate by more than this share, because estimates err
  };
  // `step_us`: time of the step with such drafts. Returns the number of tokens to verify for each offer.
  std::span<const int32_t> choose(std::span<const DraftOffer> offers, const Limits& limits,
                                  FunctionRef<double(const DraftedRows&)> step_us);
  // Without costs: shares `tokens` evenly.
  std::span<const int32_t> share(std::span<const DraftOffer> offers, int64_t tokens);

 private:
  struct Next {
    double gain;  // probability that this token is accepted
    size_t offer;
    int32_t token;
  };
  static bool comes_later(const Next& a, const Next& b);
  void push(const Next& next);

  std::vector<Next> queue_;  // a heap: the next token of each draft
  std::vector<size_t> taken_;
  std::vector<int32_t> lengths_;
};

}  // namespace millrace
