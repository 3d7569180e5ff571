#include <array>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/linear/rows8/pack_row.h"
#include "kernels/linear/rows8/rows8.h"

namespace millrace {
namespace {

using RowPointers = std::array<const std::byte*, kPackedRows>;  // null: beyond the last row, packed as zeros

template <class Block, class Packed>
void pack_block(const RowPointers& rows, int64_t block, std::byte* out) {
  auto& packed = *reinterpret_cast<Packed*>(out);
  std::memset(out, 0, sizeof(Packed));
  for (int row = 0; row < kPackedRows; ++row) {
    if (rows[static_cast<size_t>(row)] == nullptr) continue;
    pack_row(reinterpret_cast<const Block*>(rows[static_cast<size_t>(row)])[block], packed, row);
  }
}

struct Format {
  DType dtype;
  size_t bytes;  // per packed block
  void (*pack_block)(const RowPointers& rows, int64_t block, std::byte* out);
};

template <class Block, class Packed>
constexpr Format format_of(DType dtype) {
  return {dtype, sizeof(Packed), &pack_block<Block, Packed>};
}

constexpr Format kFormats[] = {
    format_of<BlockQ8_0, PackedQ8_0>(DType::Q8_0),     format_of<BlockQ4_0, PackedQ4_0>(DType::Q4_0),
    format_of<BlockQ4_1, PackedQ4_1>(DType::Q4_1),     format_of<BlockQ5_0, PackedQ5_0>(DType::Q5_0),
    format_of<BlockQ5_1, PackedQ5_1>(DType::Q5_1),     format_of<BlockQ2_K, PackedQ2_K>(DType::Q2_K),
    format_of<BlockQ3_K, PackedQ3_K>(DType::Q3_K),     format_of<BlockQ4_K, PackedQ4_K>(DType::Q4_K),
    format_of<BlockQ5_K, PackedQ5_K>(DType::Q5_K),     format_of<BlockQ6_K, PackedQ6_K>(DType::Q6_K),
    format_of<BlockIQ4_NL, PackedQ4_0>(DType::IQ4_NL), format_of<BlockIQ4_XS, PackedIQ4_XS>(DType::IQ4_XS),
    format_of<BlockMXFP4, PackedMXFP4>(DType::MXFP4),  format_of<BlockF8_E4M3, PackedQ8_0>(DType::F8_E4M3),
};

const Format* find_format(DType dtype) {
  for (const auto& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

// Row n of the stacked parts.
const std::byte* stacked_row(std::span<const WeightView> parts, int64_t n) {
  for (const auto& part : parts) {
    if (n < part.rows) return part.row(n);
    n -= part.rows;
  }
  return nullptr;
}

class Rows8Layout : public LinearLayout {
 public:
  std::string_view name() const override { return "rows8"; }

  bool accepts(DType format, int64_t, int64_t, const Hardware& hardware) const override {
    return find_format(format) != nullptr && hardware.device == DeviceKind::Cpu;
  }

  int64_t gate_multiple() const override { return kPackedRows; }

  DType stored(DType format) const override { return format == DType::F8_E4M3 ? DType::Q8_0 : format; }

  size_t bytes(DType format, int64_t n, int64_t k) const override {
    const int64_t blocks = (n + kPackedRows - 1) / kPackedRows * (k / info(format).block);
    return static_cast<size_t>(blocks) * packed_block_bytes(format);
  }

  void pack(std::span<const WeightView> parts, std::byte* out, ThreadPool& pool) const override {
    MR_ASSERT(!parts.empty());
    const Format* format = find_format(parts[0].dtype);
    MR_ASSERT(format != nullptr);
    int64_t n = 0;
    for (const auto& part : parts) {
      MR_ASSERT(part.dtype == parts[0].dtype && part.cols == parts[0].cols);
      n += part.rows;
    }
    const int64_t blocks = parts[0].cols / info(format->dtype).block;
    pool.parallel_for((n + kPackedRows - 1) / kPackedRows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        RowPointers rows;
        for (int row = 0; row < kPackedRows; ++row)
          rows[static_cast<size_t>(row)] = stacked_row(parts, strip * kPackedRows + row);
        std::byte* to = out + static_cast<size_t>(strip * blocks) * format->bytes;
        for (int64_t block = 0; block < blocks; ++block, to += format->bytes) format->pack_block(rows, block, to);
      }
    });
  }
};

}  // namespace

size_t packed_block_bytes(DType dtype) {
  const Format* format = find_format(dtype);
  return format != nullptr ? format->bytes : 0;
}

const LinearLayout& rows8_layout() {
  static const Rows8Layout layout;
  return layout;
}

}  // namespace millrace
