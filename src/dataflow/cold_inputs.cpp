#include "dataflow/cold_inputs.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tensor/quantize.h"

namespace millrace {
namespace {

constexpr int64_t kPatternRows = 64;  // that are random; others repeat them

std::vector<std::byte> random_rows(DType format, int64_t rows, int64_t k) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> row(static_cast<size_t>(k));
  const size_t bytes = row_bytes(format, k);
  std::vector<std::byte> all(static_cast<size_t>(rows) * bytes);
  for (int64_t i = 0; i < rows; ++i) {
    std::generate(row.begin(), row.end(), [&] { return normal(random); });
    quantize_row(format, row.data(), all.data() + static_cast<size_t>(i) * bytes, k);
  }
  return all;
}

size_t copies_of(size_t bytes, const Hardware& hardware) {
  return std::max<size_t>(1, (cold_bytes(hardware) + bytes - 1) / bytes);
}

size_t bytes_of(DType format, int64_t n, int64_t k, const LinearLayout& layout) {
  return layout.in_place(format, n, k) ? static_cast<size_t>(n) * row_bytes(format, k) : layout.bytes(format, n, k);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

size_t cold_bytes(const Hardware& hardware) {
  constexpr int64_t kLeast = int64_t{96} << 20, kMost = int64_t{640} << 20;
  return static_cast<size_t>(std::clamp(3 * hardware.l3_bytes, kLeast, kMost));
}

ColdWeights::ColdWeights(DType format, int64_t n, int64_t k, const LinearLayout& layout, const Hardware& hardware,
                         ThreadPool& pool)
    : bytes_(bytes_of(format, n, k, layout)),
      arena_("weights to time kernels with", copies_of(Arena::padded(bytes_), hardware) * Arena::padded(bytes_)) {
  const auto pattern = random_rows(format, std::min(n, kPatternRows), k);
  std::vector<WeightView> parts;
  for (int64_t row = 0; row < n; row += kPatternRows) {
    parts.push_back({format, std::min(kPatternRows, n - row), k, pattern.data()});
  }
  for (size_t i = 0; i < copies_of(Arena::padded(bytes_), hardware); ++i) {
    std::byte* copy = arena_.take(bytes_);
    if (i > 0) {
      std::memcpy(copy, copies_[0].data, bytes_);
    } else if (!layout.in_place(format, n, k)) {
      layout.pack(parts, copy, pool);
    } else {
      for (std::byte* to = copy; const auto& part : parts) to = std::copy_n(part.data, part.bytes(), to);
    }
    copies_.push_back({format, n, k, &layout, copy});
  }
}

ColdKeys::ColdKeys(const AttentionProblem& p, const Hardware& hardware)
    : problem_(p),
      pages_per_sequence_(ceil_div(p.context, p.block_size)),
      pages_(std::max(pages_per_sequence_ * p.sequences,
                      ceil_div(static_cast<int64_t>(cold_bytes(hardware)),
                               2 * static_cast<int64_t>(row_bytes(p.kv, p.head_dim)) * p.kv_heads * p.block_size))),
      arena_("keys to time kernels with",
             2 * Arena::padded(static_cast<size_t>(pages_ * p.kv_heads * p.block_size) * row_bytes(p.kv, p.head_dim))),
      layer_{p.kv, p.kv_heads, p.head_dim, p.block_size} {
  const size_t row = row_bytes(p.kv, p.head_dim);
  const int64_t rows = pages_ * p.kv_heads * p.block_size;
  const auto pattern = random_rows(p.kv, std::min(rows, kPatternRows), p.head_dim);
  for (std::byte** to : {&layer_.keys, &layer_.values}) {
    *to = arena_.take(static_cast<size_t>(rows) * row);
    for (int64_t i = 0; i < rows; i += kPatternRows) {
      const auto count = static_cast<size_t>(std::min(kPatternRows, rows - i));
      std::memcpy(*to + static_cast<size_t>(i) * row, pattern.data(), count * row);
    }
  }
  for (int64_t i = 0; i < 2 * pages_; ++i) numbers_.push_back(static_cast<int32_t>(i % pages_));
  slices_.resize(static_cast<size_t>(p.sequences));
}

std::span<const SequenceSlice> ColdKeys::next() {
  const auto rows = static_cast<int32_t>(problem_.rows / problem_.sequences);
  const auto context = static_cast<int32_t>(problem_.context);
  for (size_t i = 0; i < slices_.size(); ++i) {
    const auto first = static_cast<size_t>(turn_++ * pages_per_sequence_ % pages_);
    slices_[i] = {static_cast<int32_t>(i) * rows, rows, context - rows, context,
                  std::span(numbers_).subspan(first, static_cast<size_t>(pages_per_sequence_))};
  }
  return slices_;
}

}  // namespace millrace
