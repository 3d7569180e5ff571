// How a device is to draw the tokens of a step's rows of logits, put together on the host and sent ahead of the step.
#pragma once

#include <memory>

#include "dataflow/ops.h"
#include "sampling/sampler.h"
#include "tensor/arena.h"

namespace millrace {

class DrawTables {
 public:
  DrawTables(Device& device, int64_t logit_rows, int64_t vocab, const KernelSet& kernels);
  static size_t bytes(int64_t logit_rows);

  // False: tokens are drawn on the host, as on the CPU and for vocabularies beyond what the kernel takes.
  bool usable() const { return usable_; }
  void clear();  // all rows take their likeliest token, as before the first set(); done after each step
  // Row `row` draws as the sampler would. False: the device cannot, or there is no room for the changes of its logits.
  bool set(int64_t row, const Sampler& sampler);
  bool any() const { return used_rows_ > 0; }  // somebody draws

  void send(int64_t rows);  // all of the step's: those that drew before and do not now are told so, too
  SampleOp::Args args(Matrix logits, int32_t* ids) const { return {logits, placed_rows_, placed_changes_, ids}; }

 private:
  Device& device_;
  bool usable_;
  int64_t used_rows_ = 0;     // up to the last that draws
  int32_t used_changes_ = 0;  // of all rows
  std::unique_ptr<Arena> host_, placed_;
  DrawRow *rows_ = nullptr, *placed_rows_ = nullptr;
  LogitChange *changes_ = nullptr, *placed_changes_ = nullptr;
};

}  // namespace millrace
