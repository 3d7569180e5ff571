// What a step leaves: logits where they were computed, the likeliest token of each row on the host.
#pragma once

#include <memory>
#include <span>

#include "dataflow/ops.h"
#include "tensor/arena.h"

namespace millrace {

class StepResults {
 public:
  StepResults(Device& device, int64_t logit_rows, int64_t vocab);

  // Last in a step: on a GPU finds the likeliest tokens and sends them on their way to the host.
  void take(Matrix logits, Ops& ops);
  void expect(int64_t rows) { rows_ = rows; }  // a replayed step takes them itself

  std::span<const int32_t> tokens();  // waits for the step
  Matrix logits();                    // on the host

 private:
  Device& device_;
  Matrix computed_;  // as wide as the largest step allows
  int64_t rows_ = 0;
  Arena host_, placed_;
  int32_t *host_tokens_ = nullptr, *placed_tokens_ = nullptr;
  Matrix host_logits_;
};

}  // namespace millrace
