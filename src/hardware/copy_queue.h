// A second queue beside a device's own, for layers whose weights lie in host memory: copies of weights that overlap
// with kernels, and a mark at which rows are handed over to the CPU in the middle of a step.
#pragma once

#include <memory>

#include "hardware/device.h"

namespace millrace {

class CopyQueue {
 public:
  virtual ~CopyQueue() = default;

  // wait() returns when all work is done that was in the device's queue at mark(), while later work may still run.
  // Throws if the device failed.
  virtual void mark() = 0;
  virtual void wait() = 0;

  // Copies from the device's staging() to a stage, a part of its memory(), beside its queue. A copy begins when the
  // work is done that was in the device's queue at the stage's last release(). Work enqueued there after use() waits
  // for the stage's copies.
  static constexpr int kStages = 2;
  virtual void fill(int stage, std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void use(int stage) = 0;
  virtual void release(int stage) = 0;
};

std::unique_ptr<CopyQueue> new_copy_queue(Device& device);
std::unique_ptr<CopyQueue> new_cuda_copy_queue(Device& device);  // of the CUDA back-end

}  // namespace millrace
