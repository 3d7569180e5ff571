// A read-only file in the address space; pages are read when they are touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace millrace {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the kernel that this range was consumed (its weights are packed elsewhere) and need not stay resident.
  void release(std::span<const std::byte> range) const;

 private:
  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
