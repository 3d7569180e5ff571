#include "models/stored_rows.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // adjacent elements of one row of the file, so that each cache line is read once

template <class Element>
void transpose(const WeightView& from, std::byte* to, ThreadPool& pool) {
  const auto* in = reinterpret_cast<const Element*>(from.data);
  auto* out = reinterpret_cast<Element*>(to);
  pool.parallel_for(from.cols, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < from.rows; ++k) {
      for (int64_t n = begin; n < end; ++n) out[n * from.rows + k] = in[k * from.cols + n];
    }
  });
}

void store(float value, DType as, std::byte* to) {
  if (as == DType::F32) {
    std::memcpy(to, &value, sizeof value);
  } else {
    const uint16_t half = as == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(to, &half, sizeof half);
  }
}

}  // namespace

std::vector<WeightView> in_layer_order(const WeightView& matrix, const RowGroups& stored) {
  if (stored.groups == 1 || stored.members == 1) return {matrix};
  const int64_t of_group = matrix.rows / stored.groups;
  std::vector<int64_t> sizes = stored.sizes;
  if (sizes.empty()) sizes.assign(static_cast<size_t>(stored.members), of_group / stored.members);
  MR_ASSERT(std::ssize(sizes) == stored.members);
  MR_ASSERT(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) * stored.groups == matrix.rows);
  std::vector<WeightView> views;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    for (int64_t group = 0; group < stored.groups; ++group)
      views.push_back({matrix.dtype, size, matrix.cols, matrix.row(group * of_group + begin)});
    begin += size;
  }
  return views;
}

bool can_transpose(DType dtype) {
  const DTypeInfo& format = info(dtype);
  return format.block == 1 && (format.bytes == 2 || format.bytes == 4);
}

WeightView transposed(std::span<const WeightView> matrices, std::vector<std::byte>& copy, ThreadPool& pool) {
  WeightView whole{matrices.front().dtype, 0, matrices.front().rows, nullptr};
  for (const WeightView& matrix : matrices) whole.rows += matrix.cols;
  copy.resize(whole.bytes());
  whole.data = copy.data();
  std::byte* to = copy.data();
  for (const WeightView& matrix : matrices) {
    MR_ASSERT(can_transpose(matrix.dtype));
    info(matrix.dtype).bytes == 2 ? transpose<uint16_t>(matrix, to, pool) : transpose<uint32_t>(matrix, to, pool);
    to += matrix.bytes();
  }
  return whole;
}

WeightView expanded(const WeightView& from, DType as, std::vector<std::byte>& copy, ThreadPool& pool) {
  WeightView whole{as, from.rows, from.cols, nullptr};
  copy.resize(whole.bytes());
  whole.data = copy.data();
  const size_t each = row_bytes(as, from.cols), element = static_cast<size_t>(info(as).bytes);
  pool.parallel_for(from.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(from.cols));
    for (int64_t i = begin; i < end; ++i) {
      dequantize_row(from.dtype, from.row(i), row.data(), from.cols);
      std::byte* to = copy.data() + static_cast<size_t>(i) * each;
      for (const float value : row) store(value, as, std::exchange(to, to + element));
    }
  });
  return whole;
}

}  // namespace millrace
