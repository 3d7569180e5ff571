#include "hardware/storage_rate.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

namespace millrace {

std::optional<double> measure_storage_gbs(const std::filesystem::path& file) {
  constexpr off_t kPiece = 1 << 20;  // about a matrix of an expert
  constexpr size_t kAlignment = 4096;
  constexpr int kPieces = 16;
  const int descriptor = open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(kAlignment, kPiece), &std::free);
  const off_t pieces = lseek(descriptor, 0, SEEK_END) / kPiece;
  const auto start = std::chrono::steady_clock::now();
  double bytes = 0;
  for (off_t i = 0; i < std::min<off_t>(pieces, kPieces) && buffer != nullptr; ++i) {  // spread over the file
    const ssize_t got = pread(descriptor, buffer.get(), kPiece, pieces * i / kPieces * kPiece);
    if (got <= 0) break;
    bytes += static_cast<double>(got);
  }
  close(descriptor);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return bytes > 0 && seconds.count() > 0 ? std::optional(bytes * 1e-9 / seconds.count()) : std::nullopt;
}

}  // namespace millrace
