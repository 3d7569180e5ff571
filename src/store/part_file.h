// A partial download: NAME.part beside its target, hashed while it grows, renamed when complete. The bytes survive a
// kill, and the next attempt resumes behind them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "store/sha256.h"

namespace millrace {

class PartFile {
 public:
  // Opens the part of an earlier attempt, or an empty one. The caller holds the lock of the folder.
  explicit PartFile(const std::filesystem::path& target);
  ~PartFile();
  PartFile(const PartFile&) = delete;

  uint64_t size() const { return size_; }
  const std::string& validator() const { return validator_; }  // as passed to restart(); empty: unknown
  std::string sha256() const { return hash_.hex(); }

  void restart(
      const std::string& validator);  // drops all bytes; the validator (a strong ETag) identifies the content to come
  void append(std::string_view piece);
  void cut(uint64_t bytes);  // keeps only the first `bytes`; reads and hashes them again
  void put_in_place();
  void discard();

  // Throws Io if the disk has less than `bytes` free.
  void require_space(uint64_t bytes) const;

 private:
  void adopt();
  void forget_validator();

  std::filesystem::path target_, part_, note_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string validator_;
  Sha256 hash_;
};

}  // namespace millrace
