// How many draft tokens of each sequence a step verifies, and in how many branches: as many as give the most accepted
// tokens per second over all sequences, by the planned cost of a step and the sequences' histories.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/drafter.h"

namespace millrace {

// A sequence's draft: its length, and the probability of each token to be right if all before it are.
struct DraftOffer {
  int32_t tokens = 0;
  double chance = 0;
  // Branches that begin with other first tokens, and the probability of each of these to be right if the first token
  // and those of the branches before are wrong.
  int32_t branches = 0;
  std::array<double, kMostBranches> others = {};
};

// All drafts of a step.
struct DraftedRows {
  int64_t tokens = 0;     // draft tokens of all sequences and branches
  int64_t sequences = 0;  // sequences with a draft
  int64_t longest = 0;    // tokens of the longest draft
  int64_t branches = 0;   // each computes the last known token of its sequence once more
  int64_t rows() const { return tokens + branches; }
};

class DraftPlan {
 public:
  void reserve(size_t sequences, size_t rows);  // choose() then allocates nothing

  struct Limits {
    int64_t sequences = 0;  // generating ones: rows of the step without drafts
    int64_t rows = 0;       // for drafts, at most
    double margin = 0;      // drafts, and then branches, must raise the rate by more than this: estimates err
    int64_t branches = 0;   // of all sequences, at most
  };
  // `step_us`: time of the step with such drafts. Returns the number of tokens to verify for each offer.
  std::span<const int32_t> choose(std::span<const DraftOffer> offers, const Limits& limits,
                                  FunctionRef<double(const DraftedRows&)> step_us);
  // Without costs: shares `rows` evenly, first among drafts, then among their branches.
  std::span<const int32_t> share(std::span<const DraftOffer> offers, int64_t rows, int64_t branches = 0);
  // The number of branches of each offer, as chosen last. A branch is as long as the draft beside it, so that a step of
  // equal drafts has equal parts and can be recorded.
  std::span<const int32_t> branches() const { return branches_; }

 private:
  struct Next {
    double gain;  // tokens per row that this token or branch is expected to add
    size_t offer;
    int32_t number;      // of the token or branch
    double reached = 1;  // of a branch: probability that all first tokens before its own are wrong
  };
  // A step that may grow: the expected tokens, its rate, and what it verifies.
  struct Grown {
    double tokens, rate;
    DraftedRows rows;
  };
  static bool comes_later(const Next& a, const Next& b);
  void push(const Next& next);
  Next pop();
  Next branch_of(std::span<const DraftOffer> offers, size_t offer, int32_t number, double reached) const;
  void choose_branches(std::span<const DraftOffer> offers, const Limits& limits, Grown grown,
                       FunctionRef<double(const DraftedRows&)> step_us);

  std::vector<Next> queue_;  // a heap: the next token or branch of each draft
  std::vector<size_t> taken_;
  std::vector<int32_t> lengths_, branches_;
};

}  // namespace millrace
