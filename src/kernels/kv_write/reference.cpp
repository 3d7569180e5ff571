#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kv_write/kv_write.h"
#include "kernels/row_work.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr float kSmallest = 1e-30f;  // smaller maxima have a zero scale in f16, and 127 / x may overflow

BlockQ8_0 quantize(const float* x) {
  float kept[32], largest = 0;
  for (int i = 0; i < 32; ++i) {
    kept[i] = as_number(x[i], largest_kept(DType::Q8_0));
    largest = std::max(largest, std::abs(kept[i]));
  }
  const float inverse = largest > kSmallest ? 127 / largest : 0;
  BlockQ8_0 block{f32_to_f16(as_number(largest / 127, kLargestF16)), {}};
  for (int i = 0; i < 32; ++i) block.qs[i] = static_cast<int8_t>(std::nearbyint(kept[i] * inverse));
  return block;
}

void write_row(DType dtype, const float* x, int n, std::byte* out) {
  for (int i = 0; i < n; ++i) {
    const float kept = as_number(x[i], largest_kept(dtype));
    if (dtype == DType::F32) std::memcpy(out + i * 4, &kept, 4);
    if (dtype == DType::F16 || dtype == DType::BF16) {
      const uint16_t half = dtype == DType::F16 ? f32_to_f16(kept) : f32_to_bf16(kept);
      std::memcpy(out + i * 2, &half, 2);
    }
    if (dtype == kFp8) out[i] = static_cast<std::byte>(f32_to_e4m3(kept));
    if (dtype == DType::Q8_0 && i % 32 == 0) {
      const BlockQ8_0 block = quantize(x + i);
      std::memcpy(out + i / 32 * sizeof block, &block, sizeof block);
    }
  }
}

class ReferenceKvWrite : public Kernel<KvWriteOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.key_dim, p.value_dim);
  }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.kv_heads * (p.key_dim + p.value_dim));
  }

  void run(const Args& args, const Executor&) const override {
    const KvLayer& kv = args.kv;
    for (const SequenceSlice& sequence : args.sequences) {
      for (int row = 0; row < sequence.rows; ++row) {
        const int position = sequence.past + row;
        for (int head = 0; head < kv.kv_heads; ++head) {
          const int32_t page = sequence.pages[position / kv.block_size];
          const int slot = position % kv.block_size;
          const float* k = args.k.row<float>(sequence.first_row + row) + int64_t{head} * kv.key_dim;
          write_row(kv.dtype, k, kv.key_dim, kv.keys + kv.key_offset(page, head, slot));
          if (kv.latent) continue;
          const float* v = args.v.row<float>(sequence.first_row + row) + int64_t{head} * kv.value_dim;
          write_row(kv.dtype, v, kv.value_dim, kv.values + kv.value_offset(page, head, slot));
        }
      }
    }
  }
};

}  // namespace

const Kernel<KvWriteOp>* KvWriteOp::reference() {
  static const ReferenceKvWrite kernel;
  return &kernel;
}

std::string to_string(const KvWriteOp::Problem& p) {
  return fmt::format("kv_write {} kv_heads={} {} rows={}", name(p.kv), p.kv_heads,
                     row_sizes(p.key_dim, p.value_dim, p.latent), p.rows);
}

}  // namespace millrace
