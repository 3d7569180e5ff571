#include "store/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

std::filesystem::path with_suffix(std::filesystem::path path, const char* suffix) { return path += suffix; }

}  // namespace

PartFile::PartFile(const std::filesystem::path& target)
    : target_(target), part_(with_suffix(target, ".part")), note_(with_suffix(target, ".part.etag")) {
  std::filesystem::create_directories(target.parent_path());
  fd_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) fail_errno(part_.string());
  adopt();
}

PartFile::~PartFile() {
  if (size_ == 0) discard();  // nothing to resume
  ::close(fd_);
}

void PartFile::adopt() {
  std::ifstream note(note_);
  std::getline(note, validator_);
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(part_.string());
    if (got == 0) break;
    hash_.add({buffer.data(), static_cast<size_t>(got)});
    size_ += static_cast<uint64_t>(got);
  }
  if (size_ == 0) validator_.clear();
}

void PartFile::restart(const std::string& validator) {
  // This order guarantees, for a kill at any point, that no bytes remain beside the validator of another content.
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail_errno(part_.string());
  size_ = 0;
  hash_ = Sha256();
  validator_ = validator;
  std::ofstream note(note_, std::ios::trunc);
  if (!(note << validator << '\n').flush()) fail_errno(note_.string());
}

void PartFile::append(std::string_view piece) {
  hash_.add(piece);
  while (!piece.empty()) {
    const ssize_t written = ::write(fd_, piece.data(), piece.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      fail(ErrorKind::Io, "{}: the disk is full; make room or set MILLRACE_CACHE to another disk", part_.string());
    }
    if (written < 0) fail_errno(part_.string());
    piece.remove_prefix(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
}

void PartFile::cut(uint64_t bytes) {
  if (bytes >= size_) return;
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail_errno(part_.string());
  size_ = 0;
  hash_ = Sha256();
  adopt();
}

void PartFile::put_in_place() {
  // Sync before the rename, so that a file under its final name is complete even after a power failure.
  if (::fdatasync(fd_) != 0) fail_errno(part_.string());
  if (::rename(part_.c_str(), target_.c_str()) != 0) fail_errno(target_.string());
  forget_validator();
}

void PartFile::discard() {
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
  forget_validator();
}

void PartFile::forget_validator() {
  std::error_code ignored;
  std::filesystem::remove(note_, ignored);
}

void PartFile::require_space(uint64_t bytes) const {
  std::error_code unknown;
  const auto space = std::filesystem::space(target_.parent_path(), unknown);
  if (!unknown && space.available < bytes) {
    fail(ErrorKind::Io, "{}: {} MB are needed and {} MB are free; make room or set MILLRACE_CACHE to another disk",
         target_.parent_path().string(), bytes / 1000000 + 1, space.available / 1000000);
  }
}

}  // namespace millrace
