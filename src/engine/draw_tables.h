// How a device is to draw the tokens of a step's rows of logits, put together on the host and sent ahead of the step.
// The host fills one of two slots while a copy from the other may be under way.
#pragma once

#include <memory>

#include "dataflow/ops.h"
#include "sampling/sampler.h"
#include "tensor/arena.h"

namespace millrace {

class DrawTables {
 public:
  DrawTables(const Ops& ops, bool on_device, int64_t logit_rows, int64_t vocab);
  // Whether a kernel of the device draws from this many logits.
  static bool can_draw(const Ops& ops, int64_t logit_rows, int64_t vocab);
  static size_t bytes(int64_t logit_rows);

  // False: tokens are drawn on the host, as on the CPU and for vocabularies beyond what the kernel takes.
  bool usable() const { return usable_; }
  void use(int slot) { host_ = &slots_[slot]; }  // what follows is about this one
  void clear();  // all rows take their likeliest token, as before the first set(); done after each step
  // Rows from `row` on draw as the sampler would for its next `count` tokens, the first of them `later` draws from now.
  // False, and nothing is set: the device cannot (penalties of the second token depend on the first), or there is no
  // room for the changes of the logits.
  bool set(int64_t row, const Sampler& sampler, int later = 0, int count = 1);
  bool any() const { return host_->used_rows > 0; }  // somebody draws

  void send(int64_t rows);  // all of the step's: those that drew before and do not now are told so, too
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
    int64_t used_rows = 0;     // up to the last that draws
    int32_t used_changes = 0;  // of all rows
  };
  Slot slots_[Device::kStepsAtOnce];
  Slot* host_ = &slots_[0];
  std::unique_ptr<Arena> placed_;
  DrawRow* placed_rows_ = nullptr;
  LogitChange* placed_changes_ = nullptr;
};

}  // namespace millrace
