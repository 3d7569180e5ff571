// What one step computes: prefill chunks and single decode tokens of several sequences, side by side.
#pragma once

#include <span>

#include "kernels/attention/attention.h"

namespace millrace {

struct Batch {
  // Of all sequences, slice after slice. One below zero is not known yet: row ~token of the step before chooses it.
  std::span<const int32_t> tokens;
  std::span<const SequenceSlice> sequences;  // cover the tokens in order; their pages have room for the new rows
  std::span<const int32_t> logit_rows;       // rows whose logits are wanted, each once
  int64_t without_logits = 0;  // the last so many of them: only their hidden states after the final norm are
};

// The batch where the kernels run: `tokens` and `logit_rows` are there, and so is what follows from the slices.
struct PlacedBatch : Batch {
  std::span<const int32_t> positions;  // of each row
  std::span<const int32_t> horizons;   // of each row: the length its sequence is known to reach
  SliceTables tables;
  const int32_t* chosen = nullptr;  // the tokens that rows of the step before chose
  bool wants_every_row = false;     // `logit_rows` are all rows in their order
};

}  // namespace millrace
