// What a step leaves: logits where they were computed, the token that each row likes best or drew: on the host, in one
// of two slots, since the next step may be under way when they are read, and for that step where the kernels run.
#pragma once

#include <memory>
#include <span>

#include "dataflow/ops.h"
#include "engine/draw_tables.h"
#include "tensor/arena.h"

namespace millrace {

class StepResults {
 public:
  StepResults(Device& device, bool chooses, int64_t logit_rows, int64_t vocab, int64_t hidden);

  // Last in a step: where the device chooses, finds the likeliest tokens, or draws.
  void take(Matrix logits, const DrawTables& draws, int slot, Ops& ops);
  void expect(int64_t rows) { rows_ = rows; }  // a replayed step takes them itself
  int64_t rows() const { return rows_; }       // of the step started last

  std::span<const int32_t> tokens(int slot, int64_t rows) const;  // of a step that is done; none where the host chooses
  const int32_t* chosen() const { return chosen_; }               // where the kernels run
  Matrix logits();                                                // on the host
  // The same, but only rows for which wanted[row] is not 0 are there.
  Matrix logits(std::span<const uint8_t> wanted);
  // Rows of hidden states on the host, in f32.
  Matrix hidden(Matrix states, int64_t first, int64_t count);

 private:
  Device& device_;
  Matrix computed_;  // as wide as the largest step allows
  int64_t rows_ = 0;
  bool chooses_;
  Arena host_, placed_;
  int32_t* tokens_[Device::kStepsAtOnce] = {};
  int32_t* chosen_ = nullptr;
  Matrix host_logits_, host_hidden_;
};

}  // namespace millrace
