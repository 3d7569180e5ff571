// Sampling parameters for each row of logits of a step, sent to the device before the step. Two host slots: one is
// filled while the copy from the other may still be running.
#pragma once

#include <memory>

#include "dataflow/ops.h"
#include "sampling/sampler.h"
#include "tensor/arena.h"

namespace millrace {

class DrawTables {
 public:
  DrawTables(const Ops& ops, bool on_device, int64_t logit_rows, int64_t vocab);
  // True if the device has a sampling kernel for this size.
  static bool can_draw(const Ops& ops, int64_t logit_rows, int64_t vocab);
  static size_t bytes(int64_t logit_rows);

  // False: the host samples. So on the CPU, and if the vocabulary exceeds the limit of the kernel.
  bool usable() const { return usable_; }
  void use(int slot) { host_ = &slots_[slot]; }  // slot that the following calls use
  void clear();  // all rows take the argmax, as before the first set(); called after each step
  // Rows from `row` on sample like the next `count` draws of the sampler, beginning `later` draws from now. Returns
  // false and sets nothing if the device cannot do so: penalties for the second token depend on the first, or the table
  // of changed logits is full.
  bool set(int64_t row, const Sampler& sampler, int later = 0, int count = 1);
  bool any() const { return host_->used_rows > 0; }  // whether any row samples

  void send(int64_t rows);  // copies all rows of the step, including those reset to argmax
  SampleOp::Args args(Matrix logits, int32_t* ids, int32_t* chosen) const {
    return {logits, placed_rows_, placed_changes_, ids, chosen};
  }

 private:
  bool set_one(int64_t row, const Sampler& sampler, int later);

  Device& device_;
  bool usable_;
  struct Slot {
    std::unique_ptr<Arena> arena;
    DrawRow* rows = nullptr;
    LogitChange* changes = nullptr;
    int64_t used_rows = 0;     // number of rows up to the last that samples
    int32_t used_changes = 0;  // of all rows together
  };
  Slot slots_[Device::kStepsAtOnce];
  Slot* host_ = &slots_[0];
  std::unique_ptr<Arena> placed_;
  DrawRow* placed_rows_ = nullptr;
  LogitChange* placed_changes_ = nullptr;
};

}  // namespace millrace
