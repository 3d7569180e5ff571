#include "hardware/copy_queue.h"

namespace millrace {
namespace {

// On the CPU all work is immediate.
class HostCopyQueue final : public CopyQueue {
 public:
  void mark() override {}
  void wait() override {}
  void fill(int, std::byte* to, const std::byte* from, size_t bytes) override { host_memory().write(to, from, bytes); }
  void use(int) override {}
  void release(int) override {}
};

}  // namespace

std::unique_ptr<CopyQueue> new_copy_queue(Device& device) {
  if (device.is_host()) return std::make_unique<HostCopyQueue>();
  return new_cuda_copy_queue(device);
}

}  // namespace millrace
