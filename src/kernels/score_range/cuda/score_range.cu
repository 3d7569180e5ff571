#include "kernels/attention/scores.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/small_floats.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/score_range/score_range.h"
#include "tensor/blocks.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;  // positions at a time

struct Params {
  GpuMatrix q;
  const std::byte* keys;
  DType kv;
  int heads, kv_heads, head_dim, block_size, window;
  int64_t row_bytes;
  float scale, softcap;
  SliceTables tables;
  ScoreRange* ranges;
};

__device__ float key_value(const std::byte* row, DType dtype, int i) {
  if (dtype == kFp8) return e4m3_value(static_cast<uint32_t>(row[i]));
  if (dtype != DType::Q8_0) return load(row, dtype, i);
  const auto& block = reinterpret_cast<const BlockQ8_0*>(row)[i / 32];
  return __half2float(__ushort_as_half(block.d)) * float(block.qs[i % 32]);
}

// Atomics order integers: non-negative floats compare like their bits, negative ones in reverse.
__device__ void widen(ScoreRange* range, float value) {
  auto* least = reinterpret_cast<int*>(&range->least);
  auto* most = reinterpret_cast<int*>(&range->most);
  if (value >= 0) {
    atomicMin(least, __float_as_int(value));
    atomicMax(most, __float_as_int(value));
  } else {
    atomicMax(reinterpret_cast<unsigned*>(least), __float_as_uint(value));
    atomicMin(reinterpret_cast<unsigned*>(most), __float_as_uint(value));
  }
}

// Grid: (sequence, head, row of the slice).
__global__ void __launch_bounds__(kThreads) find_ranges(Params p) {
  extern __shared__ float q[];  // [head_dim]
  const SliceTables::Slice slice = p.tables.slices[blockIdx.x];
  const int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads), row = blockIdx.z;
  if (row >= slice.rows) return;
  for (int i = threadIdx.x; i < p.head_dim; i += kThreads)
    q[i] = p.q.get(slice.first_row + row, int64_t(head) * p.head_dim + i);
  __syncthreads();
  const int32_t* pages = p.tables.pages + blockIdx.x * p.tables.page_stride;
  const int last = slice.past + row, first = p.window > 0 ? max(0, last - p.window + 1) : 0;
  float largest = -kScoreLimit;
  for (int position = first + threadIdx.x; position <= last; position += kThreads) {
    const int64_t page = pages[position / p.block_size];
    const int64_t at = (page * p.kv_heads + kv_head) * p.block_size + position % p.block_size;
    float dot = 0;
    for (int i = 0; i < p.head_dim; ++i) dot += q[i] * key_value(p.keys + at * p.row_bytes, p.kv, i);
    largest = fmaxf(largest, dot * p.scale);  // fmaxf ignores NaN
  }
  largest = fminf(block_reduce<Largest>(largest), kScoreLimit);
  if (p.softcap > 0) largest = p.softcap * tanhf(largest / p.softcap);
  if (threadIdx.x == 0) widen(p.ranges + head, largest + 0.0f);  // + 0.0f turns -0 into 0
}

class CudaScoreRange final : public Kernel<ScoreRangeOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_kv_dtype(p.kv, p.key_dim);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double products = double(p.rows) * double(p.context) * p.heads * p.key_dim;
    return 10 + products * 2 / (0.02 * hardware.ceilings.f32_gflops) * 1e-3;
  }
  void run(const Args& args, const Executor& executor) const override {
    const AttentionArgs& a = args.attention;
    if (a.q.rows == 0) return;
    const Params params{a.q,
                        a.kv.keys,
                        a.kv.dtype,
                        a.heads,
                        a.kv.kv_heads,
                        a.kv.key_dim,
                        a.kv.block_size,
                        a.window,
                        static_cast<int64_t>(a.kv.key_row_bytes()),
                        a.scale,
                        a.softcap,
                        a.tables,
                        args.ranges};
    const dim3 grid(static_cast<unsigned>(a.sequences.size()), static_cast<unsigned>(a.heads),
                    static_cast<unsigned>(a.tables.longest_slice));
    find_ranges<<<grid, kThreads, static_cast<size_t>(a.kv.key_dim) * sizeof(float),
                  static_cast<cudaStream_t>(executor.queue)>>>(params);
  }
};

}  // namespace

KernelList<ScoreRangeOp> ScoreRangeOp::cuda() {
  static const CudaScoreRange kernel;
  return {&kernel};
}

}  // namespace millrace
