// Reads bytes of an untrusted file; every access is checked against the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace millrace {

class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      fail(ErrorKind::BadFile, "{}: the file ends inside {}: {} bytes wanted at byte {}, {} left; is it truncated?",
           origin_, what, count, position_, remaining());
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return taken;
  }

  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // Reads a count of items of at least `least_bytes` each. A count that cannot fit in the file is refused before
  // anything is reserved or looped over.
  uint64_t count(uint64_t least_bytes, std::string_view what) {
    const auto value = read<uint64_t>(what);
    if (value > remaining() / least_bytes) {
      fail(ErrorKind::BadFile, "{}: the number of {} is {}, more than the file has bytes for", origin_, what, value);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& origin_;
  size_t position_ = 0;
};

}  // namespace millrace
