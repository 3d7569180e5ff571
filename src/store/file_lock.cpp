#include "store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace millrace {

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
                   const std::function<bool()>& cancelled)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail_errno(path.string());
  bool told = false;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    const bool stop = cancelled && cancelled();
    if ((code != EWOULDBLOCK && code != EINTR) || stop) {
      ::close(fd_);
      errno = code;
      if (stop) fail(ErrorKind::Cancelled, "stopped while waiting for {}", path.string());
      fail_errno("cannot lock " + path.string());
    }
    if (!told && waiting) waiting();
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The file stays. If it were removed, a third process could lock a new file of the same name while another still waits
// on the old one.
FileLock::~FileLock() { ::close(fd_); }

}  // namespace millrace
