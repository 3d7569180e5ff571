// The ragged batch of one step: prefill chunks and decode tokens of several sequences.
#pragma once

#include <span>

#include "kernels/attention/attention.h"

namespace millrace {

// The second input of a draft head (models/draft_heads.h): a hidden state for each row of the batch.
struct DraftFeatures {
  Matrix matrix;                  // in device memory
  std::span<const int32_t> rows;  // of `matrix`, for each row of the batch
  bool own = false;               // hidden states of the head's previous pass, not of the target
};

struct Batch {
  // All sequences' tokens, slice after slice. A negative token refers to the token that row ~token of the previous step
  // chose.
  std::span<const int32_t> tokens;
  std::span<const SequenceSlice> sequences;  // cover the tokens in order; their pages have room for the new rows
  std::span<const int32_t> logit_rows;       // rows whose logits are wanted, each once
  int64_t without_logits = 0;                // the last so many logit rows need only hidden states after the final norm
  int32_t alternatives = 0;                  // of a draft head: the next likeliest tokens that are wanted of each row
  DraftFeatures features;                    // of a draft head
  std::span<const int32_t> sequence_adapters = {};  // AdapterTable slots, -1: none; empty: no sequence has one
};

// The batch in device memory, with tables derived from the slices.
struct PlacedBatch : Batch {
  std::span<const int32_t> positions;  // of each row
  std::span<const int32_t> horizons;   // of each row: the length that its sequence will have at least
  std::span<const int32_t> types;      // of each row: 1 in the second text of a pair, else 0
  SliceTables tables;
  const int32_t* chosen = nullptr;  // tokens chosen by the rows of the previous step
  bool wants_every_row = false;     // logit_rows are all rows in order
  // The adapter of each row and of each logit row (AdapterTable slots, -1: none). Empty: no row has one.
  std::span<const int32_t> adapters, wanted_adapters;
};

}  // namespace millrace
