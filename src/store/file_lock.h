// One process at a time: an advisory lock that the system releases even when its holder is killed.
#pragma once

#include <filesystem>
#include <functional>

namespace millrace {

class FileLock {
 public:
  // Makes the file if need be and waits for whoever holds it. `waiting` is called once if there is a wait;
  // `cancelled` ends it with Cancelled. Both may be empty.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
           const std::function<bool()>& cancelled);
  ~FileLock();
  FileLock(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace millrace
