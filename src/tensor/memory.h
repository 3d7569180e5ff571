// Where bytes live: the host's memory, pinned memory that a device copies from, or a device's own.
#pragma once

#include <cstddef>
#include <string>

namespace millrace {

class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* allocate(const std::string& purpose, size_t bytes) = 0;  // throws OutOfMemory
  virtual void release(std::byte* data, size_t bytes) noexcept = 0;
  // Copies from and to the host's memory; done when they return.
  virtual void write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Within this memory; a device's own is copied in the order of its queue.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void clear(std::byte* to, size_t bytes) = 0;  // sets to zero, in the same order
};

Memory& host_memory();

}  // namespace millrace
