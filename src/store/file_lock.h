// An advisory lock between processes. The kernel releases it even if the holder is killed.
#pragma once

#include <filesystem>
#include <functional>

namespace millrace {

class FileLock {
 public:
  // Creates the file if needed and waits for the lock. Calls `waiting` once if it has to wait; throws Cancelled when
  // `cancelled` returns true. Both may be empty.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
           const std::function<bool()>& cancelled);
  ~FileLock();
  FileLock(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace millrace
