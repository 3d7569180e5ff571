#include "formats/tiled_pattern.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "tensor/quantize.h"

namespace millrace {
namespace {

constexpr size_t kLargestPattern = 256u << 20;
constexpr float kSpread = 0.02f;  // typical standard deviation of a weight

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Normally distributed numbers in the format: about a megabyte, repeated by the pattern.
std::vector<std::byte> random_blocks(DType dtype) {
  constexpr int64_t kElements = 256 * 257;  // an odd number of blocks, so that adjacent rows differ
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, kSpread);
  std::vector<float> numbers(kElements);
  for (float& number : numbers) number = normal(random);
  std::vector<std::byte> blocks(row_bytes(dtype, kElements));
  quantize_row(dtype, numbers.data(), blocks.data(), kElements);
  return blocks;
}

void fill(std::byte* data, size_t size, std::span<const std::byte> unit) {
  for (size_t at = 0; at < size; at += unit.size()) {
    std::memcpy(data + at, unit.data(), std::min(unit.size(), size - at));
  }
}

}  // namespace

TiledPattern::TiledPattern(DType dtype, size_t wanted) {
  period_ = std::lcm(static_cast<size_t>(info(dtype).bytes), static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  size_ = rounded_up(std::min(wanted, kLargestPattern), period_);
  file_ = ::memfd_create("millrace-synthetic", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(size_)) != 0) fail_errno("memory for synthetic weights");
  void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) fail_errno("memory for synthetic weights");
  fill(static_cast<std::byte*>(mapped), size_, random_blocks(dtype));
  ::munmap(mapped, size_);
}

TiledPattern::~TiledPattern() {
  for (const Range& range : ranges_) ::munmap(range.data, range.bytes);
  if (file_ >= 0) ::close(file_);
}

const std::byte* TiledPattern::show(size_t bytes, size_t which) {
  const size_t total = rounded_up(std::max<size_t>(bytes, 1), static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  void* reserved = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail_errno("address space for synthetic weights");
  auto* data = static_cast<std::byte*>(reserved);
  ranges_.push_back({data, total});
  size_t offset = which * 7919 % (size_ / period_) * period_;  // a prime, so that starts are scattered
  for (size_t at = 0; at < total;) {
    const size_t piece = std::min(total - at, size_ - offset);
    if (::mmap(data + at, piece, PROT_READ, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset)) == MAP_FAILED) {
      fail_errno("address space for synthetic weights");
    }
    at += piece;
    offset = 0;
  }
  return data;
}

}  // namespace millrace
