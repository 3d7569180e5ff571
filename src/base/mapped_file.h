// A read-only memory-mapped file; the system reads pages when they are first accessed.
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

  // Tells the system that this range need not stay resident, for example after its weights were packed.
  void release(std::span<const std::byte> range) const;

 private:
  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
