#include "base/write_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "base/error.h"

namespace millrace {
namespace {

// Writes a temporary file in the same folder; a rename then replaces the target atomically.
std::filesystem::path write_beside(const std::filesystem::path& path, std::string_view content) {
  static std::atomic<int> calls{0};  // keeps temporary names of threads apart
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path part = path.string() + fmt::format(".{}.{}.part", ::getpid(), calls++);
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (!out) {
    const int why = errno;
    std::filesystem::remove(part, error);
    errno = why;
    fail_errno("cannot write " + path.string());
  }
  return part;
}

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path part = write_beside(path, content);
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(part, error);
    fail(ErrorKind::Io, "cannot write {}: {}", path.string(), why);
  }
}

void require_writable(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(write_beside(path, ""), error);
}

}  // namespace millrace
