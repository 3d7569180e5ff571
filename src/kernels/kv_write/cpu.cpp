#include <cmath>
#include <cstring>

#include "kernels/kv_write/kv_write.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_write/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

constexpr float kSmallest = 1e-30f;  // smaller maxima have a zero scale in f16, and 127 / x may overflow

template <DType kFormat>
F32Vec load_number(const float* x) {
  const F32Vec v = load(x), most = broadcast(largest_kept(kFormat));
  return hn::IfThenZeroElse(hn::IsNaN(v), hn::Clamp(v, hn::Neg(most), most));
}

void write_f32(const float* x, int n, std::byte* bytes) {
  auto* out = reinterpret_cast<float*>(bytes);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load_number<DType::F32>(x + i), kF32, out + i);
  for (; i < n; ++i) out[i] = as_number(x[i], largest_kept(DType::F32));
}

void write_f16(const float* x, int n, std::byte* bytes) {
  auto* out = reinterpret_cast<uint16_t*>(bytes);
  int i = 0;
#if HWY_TARGET != HWY_SSE4  // SSE4 has no conversion instruction, and Highway's fallback truncates
  const hn::Rebind<hwy::float16_t, F32> d16;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d16, load_number<DType::F16>(x + i)), d16, reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
  for (; i < n; ++i) out[i] = f32_to_f16(as_number(x[i], kLargestF16));
}

void write_bf16(const float* x, int n, std::byte* bytes) {
  auto* out = reinterpret_cast<uint16_t*>(bytes);
  const hn::RebindToUnsigned<F32> d32;
  const hn::RebindToSigned<F32> di32;
  const hn::Rebind<uint16_t, F32> d16;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto bits = hn::BitCast(d32, load_number<DType::BF16>(x + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));  // round to nearest even
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, hn::ShiftRight<16>(rounded))), d16, out + i);
  }
  for (; i < n; ++i) out[i] = f32_to_bf16(as_number(x[i], kLargestBf16));
}

void write_q8_0(const float* x, int n, std::byte* out) {
  const hn::RebindToSigned<F32> d32;
  const hn::Rebind<int8_t, F32> d8;
  for (int begin = 0; begin < n; begin += 32, out += sizeof(BlockQ8_0)) {
    F32Vec most = hn::Zero(kF32);
    for (int i = 0; i < 32; i += kLanes) most = hn::Max(most, hn::Abs(load_number<DType::Q8_0>(x + begin + i)));
    const float largest = max_of(most);
    const F32Vec inverse = broadcast(largest > kSmallest ? 127 / largest : 0.0f);
    BlockQ8_0 block;
    block.d = f32_to_f16(as_number(largest / 127, kLargestF16));
    for (int i = 0; i < 32; i += kLanes) {
      const F32Vec scaled = hn::Mul(load_number<DType::Q8_0>(x + begin + i), inverse);
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(d32, hn::Round(scaled))), d8, block.qs + i);
    }
    std::memcpy(out, &block, sizeof block);
  }
}

void write_fp8(const float* x, int n, std::byte* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<std::byte>(f32_to_e4m3(x[i]));
}

using WriteRow = void (*)(const float* x, int n, std::byte* out);

WriteRow choose(DType dtype) {
  if (dtype == kFp8) return write_fp8;
  switch (dtype) {
    case DType::F16:
      return write_f16;
    case DType::BF16:
      return write_bf16;
    case DType::Q8_0:
      return write_q8_0;
    default:
      return write_f32;
  }
}

class SimdKvWrite : public Kernel<KvWriteOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && is_kv_dtype(p.kv, p.key_dim, p.value_dim);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.kv_heads * (p.key_dim + (p.latent ? 0 : p.value_dim)), 8, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    const KvLayer& kv = args.kv;
    const WriteRow write = choose(kv.dtype);
    for (const SequenceSlice& sequence : args.sequences) {
      for_rows(executor, sequence.rows, int64_t{kv.kv_heads} * (kv.key_dim + (kv.latent ? 0 : kv.value_dim)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) write_token(args, sequence, row, write);
               });
    }
  }

 private:
  static void write_token(const Args& args, const SequenceSlice& sequence, int64_t row, WriteRow write) {
    const KvLayer& kv = args.kv;
    const int position = sequence.past + static_cast<int>(row);
    const float* k = args.k.row<float>(sequence.first_row + row);
    const int32_t page = sequence.pages[position / kv.block_size];
    const int slot = position % kv.block_size;
    for (int head = 0; head < kv.kv_heads; ++head, k += kv.key_dim)
      write(k, kv.key_dim, kv.keys + kv.key_offset(page, head, slot));
    if (kv.latent) return;
    const float* v = args.v.row<float>(sequence.first_row + row);
    for (int head = 0; head < kv.kv_heads; ++head, v += kv.value_dim)
      write(v, kv.value_dim, kv.values + kv.value_offset(page, head, slot));
  }
};

}  // namespace

const Kernel<KvWriteOp>* kv_write_kernel() {
  static const SimdKvWrite kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<KvWriteOp> KvWriteOp::cpu() { return {MR_EACH_TARGET(kv_write_kernel), KvWriteOp::reference()}; }

}  // namespace millrace
#endif
