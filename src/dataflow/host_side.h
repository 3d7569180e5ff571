// The part of a device's steps that the CPU computes, because the device's memory does not hold all weights.
//
// Rows go through pinned memory, which the device's kernels write and read directly: the device copies the input of a
// layer there, the CPU computes the layer, the device adds the result to its own rows.
#pragma once

#include <array>
#include <memory>

#include "hardware/device.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "tensor/arena.h"

namespace millrace {

class Ops;

class HostSide {
 public:
  // `ops` run on the CPU with f32 activations. `device` is the one that hands work over.
  // link_gbs: the rate of copies between them.
  HostSide(Ops& ops, Device& device, double link_gbs) : ops_(ops), device_(device), link_gbs_(link_gbs) {}

  Ops& ops() const { return ops_; }
  double link_gbs() const { return link_gbs_; }
  // Buffers of one hand-over, f32. Before allocate() they have addresses that must not be dereferenced, and the largest
  // request of each is noted.
  Matrix input(int64_t rows, int64_t cols);   // pinned
  Matrix output(int64_t rows, int64_t cols);  // pinned
  Matrix feed(int64_t rows, int64_t cols);    // between the two layers of experts
  Routing routing(const Routing& like);       // `chosen` and `weights` are pinned

  void allocate();       // call after the last plan
  size_t bytes() const;  // host memory that allocate() takes

 private:
  enum Buffer : uint8_t { kInput, kOutput, kChosen, kWeights, kPinned, kFeed = kPinned, kOrder, kOffsets, kBuffers };
  std::byte* take(Buffer which, size_t bytes);
  Matrix matrix(Buffer which, int64_t rows, int64_t cols);
  size_t bytes(int begin, int end) const;
  void place(int begin, int end, Arena& arena);

  Ops& ops_;
  Device& device_;
  double link_gbs_;
  struct Space {
    size_t bytes = 0;
    std::byte* data = nullptr;
  };
  std::array<Space, kBuffers> spaces_;
  std::unique_ptr<Arena> pinned_, plain_;
};

}  // namespace millrace
