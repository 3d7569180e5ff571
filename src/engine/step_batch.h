// Assembles the batch of one step in buffers allocated once for the largest step.
#pragma once

#include <vector>

#include "models/batch.h"

namespace millrace {

class StepBatch {
 public:
  StepBatch(int64_t rows, int64_t sequences, int64_t logit_rows);

  void clear();
  enum class Logits { None, Last, All };
  // Appends new tokens of a sequence that has `past` cached ones; its pages must have room for them. `slot`: of its
  // recurrent state, if the model has any.
  void add(std::span<const int32_t> tokens, int32_t past, int32_t horizon, std::span<const int32_t> pages,
           Logits logits, int32_t slot = -1, int32_t adapter = -1);

  // The same with logits, or only hidden states, for rows [begin, end) of the new ones.
  struct Rows {
    int32_t begin = 0, end = 0;
    int32_t size() const { return end - begin; }
  };
  // `drafts`: all tokens after the first are drafts. `adapter`: an AdapterTable slot.
  void add(std::span<const int32_t> tokens, int32_t past, int32_t horizon, std::span<const int32_t> pages, Rows logits,
           Rows hidden, int32_t slot = -1, bool drafts = false, int32_t second = 0, int32_t adapter = -1);

  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  bool empty() const { return tokens_.empty(); }
  Batch batch();

 private:
  std::vector<int32_t> tokens_, logit_rows_, hidden_rows_, chosen_rows_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> adapters_;  // by slice
};

}  // namespace millrace
