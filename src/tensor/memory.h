// Kinds of memory: the host's, pinned host memory that a device copies from, or a device's own.
#pragma once

#include <cstddef>
#include <string>

namespace millrace {

class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* allocate(const std::string& purpose, size_t bytes) = 0;  // throws OutOfMemory
  virtual void release(std::byte* data, size_t bytes) noexcept = 0;
  // Synchronous copies from and to host memory.
  virtual void write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Within this memory; on a device it is enqueued and asynchronous.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void clear(std::byte* to, size_t bytes) = 0;  // sets to zero, in the same order
  // The same for `count` ranges that begin `stride` bytes apart, in source and target. On a device it is one copy.
  virtual void copy_ranges(std::byte* to, const std::byte* from, size_t bytes, size_t stride, size_t count) {
    for (size_t i = 0; i < count; ++i) copy(to + i * stride, from + i * stride, bytes);
  }
};

Memory& host_memory();

}  // namespace millrace
