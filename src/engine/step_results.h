// What a step leaves: logits where they were computed, the token that each row likes best or drew on the host.
#pragma once

#include <memory>
#include <span>

#include "dataflow/ops.h"
#include "engine/draw_tables.h"
#include "tensor/arena.h"

namespace millrace {

class StepResults {
 public:
  StepResults(Device& device, int64_t logit_rows, int64_t vocab, int64_t hidden);

  // Last in a step: on a GPU finds the likeliest tokens, or draws, which it writes into the host's memory.
  void take(Matrix logits, const DrawTables& draws, Ops& ops);
  void expect(int64_t rows) { rows_ = rows; }  // a replayed step takes them itself

  std::span<const int32_t> tokens();  // waits for the step; on the CPU there are none
  Matrix logits();                    // on the host
  // The same, but only rows for which wanted[row] is not 0 are there.
  Matrix logits(std::span<const uint8_t> wanted);
  // Rows of hidden states on the host, in f32.
  Matrix hidden(Matrix states, int64_t first, int64_t count);

 private:
  Device& device_;
  Matrix computed_;  // as wide as the largest step allows
  int64_t rows_ = 0;
  Arena host_;
  int32_t* tokens_ = nullptr;
  Matrix host_logits_, host_hidden_;
};

}  // namespace millrace
