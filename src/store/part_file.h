// A file in the making: NAME.part beside its target, hashed as it grows, moved into place when it is whole. What is
// there survives a kill, so that the next attempt goes on where this one stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "store/sha256.h"

namespace millrace {

class PartFile {
 public:
  // Opens what an earlier attempt left, or an empty one. The caller holds the lock of the folder.
  explicit PartFile(const std::filesystem::path& target);
  ~PartFile();
  PartFile(const PartFile&) = delete;

  uint64_t size() const { return size_; }
  const std::string& validator() const { return validator_; }  // as given to restart(); empty: unknown
  std::string sha256() const { return hash_.hex(); }

  void restart(const std::string& validator);  // from zero; the validator says which content the bytes belong to
  void append(std::string_view piece);
  void put_in_place();
  void discard();

  // Fails with a clear line where the disk cannot take so many more bytes.
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
