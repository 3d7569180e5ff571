// The results of a step: logits, and the token that each row chose. Tokens are kept on the device for the next step,
// and on the host in two slots, because the next step may be running when they are read.
#pragma once

#include <memory>
#include <span>

#include "dataflow/ops.h"
#include "engine/draw_tables.h"
#include "tensor/arena.h"

namespace millrace {

class StepResults {
 public:
  // `alternatives`: tokens of each row beside the chosen one, at most.
  StepResults(Device& device, bool chooses, int64_t logit_rows, int32_t alternatives, int64_t vocab, int64_t hidden);

  // Ends a step: if the device chooses tokens, enqueues argmax or sampling. With argmax it also finds the next
  // likeliest tokens of each row.
  void take(Matrix logits, const DrawTables& draws, int32_t alternatives, int slot, Ops& ops);
  void expect(int64_t rows) { rows_ = rows; }  // for a replayed step, which contains take()
  int64_t rows() const { return rows_; }       // of the step started last

  // Of a finished step, [1 + alternatives][rows]; empty if the host chooses.
  std::span<const int32_t> tokens(int slot, int64_t count) const;
  const int32_t* chosen() const { return chosen_; }  // in device memory
  Matrix logits();                                   // on the host
  // Copies only rows with wanted[row] != 0; the others are undefined.
  Matrix logits(std::span<const uint8_t> wanted);
  // Rows of hidden states on the host, in f32.
  Matrix hidden(Matrix states, int64_t first, int64_t count);

 private:
  Device& device_;
  Matrix computed_;  // logits buffer on the device, which all steps share
  int64_t rows_ = 0;
  bool chooses_;
  Arena host_, placed_;
  int32_t* tokens_[Device::kStepsAtOnce] = {};
  int32_t* chosen_ = nullptr;
  Matrix host_logits_, host_hidden_;
};

}  // namespace millrace
