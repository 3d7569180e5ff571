#include "tensor/memory.h"

#include <sys/mman.h>

#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

class HostMemory final : public Memory {
 public:
  std::byte* allocate(const std::string& purpose, size_t bytes) override {
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
      fail(ErrorKind::OutOfMemory, "cannot reserve {:.1f} MB for {}", double(bytes) / 1e6, purpose);
    ::madvise(mapped, bytes, MADV_HUGEPAGE);  // speeds up scattered KV rows, slows down nothing
    return static_cast<std::byte*>(mapped);
  }
  void release(std::byte* data, size_t bytes) noexcept override { ::munmap(data, bytes); }
  void write(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void read(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void clear(std::byte* to, size_t bytes) override { std::memset(to, 0, bytes); }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace millrace
