// The part of a device's steps that the CPU computes, because the device's memory does not hold all weights.
//
// Rows go through pinned memory, which the device's kernels write and read directly: the device copies the input of a
// layer there, the CPU computes the layer, the device adds the result to its own rows.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "dataflow/linear_layer.h"
#include "dataflow/step_recording.h"
#include "hardware/copy_queue.h"
#include "hardware/link_rate.h"
#include "tensor/arena.h"

namespace millrace {

class Ops;

size_t bytes_of(const LinearWeights& weights);  // in their layout
size_t streamed_bytes(const Linear& streamed);  // that a stage needs for it

class HostSide {
 public:
  // `ops` run on the CPU with f32 activations. `device` is the one that hands work over.
  HostSide(Ops& ops, Device& device, const Link& link)
      : ops_(ops), device_(device), link_(link), queue_(new_copy_queue(device)) {}

  Ops& ops() const { return ops_; }
  const Link& link() const { return link_; }
  CopyQueue& queue() const { return *queue_; }
  // Buffers of one hand-over, f32. Before allocate() they have addresses that must not be dereferenced, and the largest
  // request of each is noted.
  Matrix input(int64_t rows, int64_t cols);   // pinned
  Matrix output(int64_t rows, int64_t cols);  // pinned
  Matrix feed(int64_t rows, int64_t cols);    // between the two layers of experts
  // `chosen` and `weights` are pinned and as far apart as the device's, so that one copy brings both.
  Routing routing(const Routing& like);
  static size_t weights_offset(const Routing& routing);  // bytes from `chosen` to `weights`

  // Weights on their way through device memory. next_stage() has room for `bytes`; a matrix of a slice lies at a
  // multiple of its stride behind `at`.
  struct Stage {
    int index = 0;
    std::byte* at = nullptr;
  };
  Stage next_stage(size_t bytes);
  // Copies `count` groups from `first` on to `at`, and returns them as weights, which stay valid until the stage's next
  // turn.
  GroupedWeights fill(const Stage& stage, std::byte* at, const Grouped& streamed, int64_t first, int64_t count);

  // Copies all parts of a linear layer; returns the address of each.
  std::vector<std::byte*>& fill(const Stage& stage, const Linear& streamed);

  // As in Device, for steps with hand-overs. The device cannot record the CPU's work, so each hand-over cuts
  // the recording: cut() ends a recording of the device, appends `work` and begins the next one.
  bool begin_recording();
  std::unique_ptr<Recording> end_recording();
  void drop_recording() noexcept;
  bool records() const { return step_ != nullptr; }
  void cut(std::function<void()> work);

  void allocate();                                                           // call after the last plan
  size_t bytes() const;                                                      // host memory that allocate() takes
  size_t device_bytes() const { return CopyQueue::kStages * stage_bytes_; }  // device memory that it takes

 private:
  enum Buffer : uint8_t { kInput, kOutput, kChoices, kPinned, kFeed = kPinned, kOrder, kOffsets, kBuffers };
  std::byte* take(Buffer which, size_t bytes);
  Matrix matrix(Buffer which, int64_t rows, int64_t cols);
  size_t bytes(int begin, int end) const;
  void place(int begin, int end, Arena& arena);

  Ops& ops_;
  Device& device_;
  Link link_;
  std::unique_ptr<CopyQueue> queue_;
  std::byte* stages_at_ = nullptr;
  struct Space {
    size_t bytes = 0;
    std::byte* data = nullptr;
  };
  std::array<Space, kBuffers> spaces_;
  std::unique_ptr<Arena> pinned_, plain_, stages_;
  std::unique_ptr<StepRecording> step_;  // null: no step is recorded now
  size_t stage_bytes_ = 0;
  int next_stage_ = 0;
  // [stage][gate_up or down]: addresses of a slice's matrices
  std::array<std::array<std::vector<const std::byte*>, 2>, CopyQueue::kStages> addresses_;
  std::vector<std::byte*> parts_;  // addresses of the parts of the last linear layer
};

}  // namespace millrace
