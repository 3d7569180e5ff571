// Planned costs of steps with drafts, from which the engine chooses the lengths of drafts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace millrace {

struct SpeculationCost {
  int64_t batch = 0;
  int32_t draft = 0;      // tokens per sequence
  double us = 0;          // expected time of the step and of the passes that draft
  double break_even = 0;  // acceptance per token from which such drafts pay; above 1: they never do
  // The same with a branch beside each draft. It pays if the second guess of the first token is right with this chance
  // where the first one is wrong, at an acceptance of kBranchAcceptance; above 1: never.
  double branch_us = 0, branch_break_even = 0;
};
constexpr double kBranchAcceptance = 0.7;

// For each batch all draft lengths, and 0. `context`: cached positions of each sequence. `passes`: of a draft model or
// heads (Drafter::passes); null: drafts cost nothing.
std::vector<SpeculationCost> speculation_costs(Runner& runner, std::span<const int32_t> batches,
                                               std::span<const int32_t> drafts, int64_t context,
                                               Runner* passes = nullptr);

// Tokens that a step gives on average: 1 + p + p^2 + ... + p^draft. Each of `width` - 1 branches begins with the right
// token with probability `second`, if the draft and the branches before do not.
double tokens_per_step(int32_t draft, double acceptance, int32_t width = 1, double second = 0);

// The acceptance at which a step that takes `times` as long gives `times` as many tokens.
double break_even_acceptance(int32_t draft, double times);

}  // namespace millrace
