// Simple attention: one block per query row and head, f32 arithmetic, any head size, any KV format, values of another
// width than keys, latent rows.
#include "base/rounding.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/scores.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/small_floats.cuh"
#include "kernels/cuda/values.cuh"
#include "tensor/blocks.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;  // positions at a time
constexpr int kMostPerThread = 8;
constexpr int kMostKeyDim = 4096;  // of q in shared memory

struct Params {
  GpuMatrix q, out;
  const std::byte *keys, *values;
  DType kv;
  int heads, kv_heads, key_dim, value_dim, block_size, window;
  bool bidirectional;
  int64_t key_bytes, value_bytes;  // from one row to the next
  float scale, softcap;
  const float* sinks;  // [heads] or null
  SliceTables tables;
};

__device__ float kv_value(const std::byte* row, DType dtype, int i) {
  if (dtype == kFp8) return e4m3_value(static_cast<uint32_t>(row[i]));
  if (dtype != DType::Q8_0) return load(row, dtype, i);
  const auto& block = reinterpret_cast<const BlockQ8_0*>(row)[i / 32];
  return __half2float(__ushort_as_half(block.d)) * float(block.qs[i % 32]);
}

__device__ float score_of(const Params& p, const float* q, const std::byte* key) {
  float dot = 0;
  for (int i = 0; i < p.key_dim; ++i) dot += q[i] * kv_value(key, p.kv, i);
  dot = fminf(fmaxf(dot * p.scale, -kScoreLimit), kScoreLimit);
  return p.softcap > 0 ? p.softcap * tanhf(dot / p.softcap) : dot;
}

// Grid: (sequence, head, row of the slice).
__global__ void __launch_bounds__(kThreads) attend(Params p) {
  extern __shared__ float q[];  // [key_dim]
  __shared__ float weights[kThreads];
  __shared__ int64_t rows[kThreads];  // of the pool
  const SliceTables::Slice slice = p.tables.slices[blockIdx.x];
  const int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads), row_in_slice = blockIdx.z;
  if (row_in_slice >= slice.rows) return;
  const int64_t row = slice.first_row + row_in_slice;
  const int64_t first_q = int64_t(head) * p.key_dim, first_col = int64_t(head) * p.value_dim;
  const int32_t* pages = p.tables.pages + blockIdx.x * p.tables.page_stride;
  for (int i = threadIdx.x; i < p.key_dim; i += kThreads) q[i] = p.q.get(row, first_q + i);

  const int own = slice.past + row_in_slice;
  const int first = p.window > 0 ? max(0, own - p.window + 1) : 0;
  const int last = !p.bidirectional ? own : p.window > 0 ? min(slice.length, own + p.window) - 1 : slice.length - 1;
  float largest = kNoScore, total = 0, sums[kMostPerThread] = {};
  for (int begin = first; begin <= last; begin += kThreads) {
    const int position = begin + threadIdx.x, count = min(kThreads, last + 1 - begin);
    __syncthreads();  // q is complete, and the previous round's weights are no longer read
    float score = kNoScore;
    if (position <= last) {
      const int64_t page = pages[position / p.block_size];
      rows[threadIdx.x] = (page * p.kv_heads + kv_head) * p.block_size + position % p.block_size;
      score = score_of(p, q, p.keys + rows[threadIdx.x] * p.key_bytes);
    }
    const float grown = fmaxf(largest, block_reduce<Largest>(score));
    const float weight = position <= last ? expf(score - grown) : 0;
    weights[threadIdx.x] = weight;
    const float rescale = expf(largest - grown);
    total = total * rescale + block_reduce<Add>(weight);
    largest = grown;
#pragma unroll
    for (int part = 0; part < kMostPerThread; ++part) {
      const int i = part * kThreads + threadIdx.x;
      if (i >= p.value_dim) break;
      float sum = sums[part] * rescale;
      for (int j = 0; j < count; ++j) sum += weights[j] * kv_value(p.values + rows[j] * p.value_bytes, p.kv, i);
      sums[part] = sum;
    }
  }
  if (p.sinks != nullptr) total += expf(p.sinks[head] - largest);
#pragma unroll
  for (int part = 0; part < kMostPerThread; ++part) {
    const int i = part * kThreads + threadIdx.x;
    if (i < p.value_dim) p.out.set(row, first_col + i, sums[part] / total);
  }
}

class CudaSimpleAttention final : public AttentionKernel {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_kv_dtype(p.kv, p.key_dim, p.value_dim) && p.key_dim <= kMostKeyDim &&
           p.value_dim <= kThreads * kMostPerThread;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double products = double(p.rows) * double(p.context) * p.heads * p.key_dim;
    return 10 + products * 4 / (0.02 * hardware.ceilings.f32_gflops) * 1e-3 + double(p.context) * 0.05;
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.q.rows == 0) return;
    const Params params{a.q,
                        a.out,
                        a.kv.keys,
                        a.kv.values,
                        a.kv.dtype,
                        a.heads,
                        a.kv.kv_heads,
                        a.kv.key_dim,
                        a.kv.value_dim,
                        a.kv.block_size,
                        a.window,
                        a.bidirectional,
                        static_cast<int64_t>(a.kv.key_row_bytes()),
                        static_cast<int64_t>(a.kv.value_row_bytes()),
                        a.scale,
                        a.softcap,
                        a.sinks,
                        a.tables};
    const dim3 grid(static_cast<unsigned>(a.sequences.size()), static_cast<unsigned>(a.heads),
                    static_cast<unsigned>(a.tables.longest_slice));
    // The compiler reads q in vectors of four, the last one in whole.
    const auto shared = static_cast<size_t>(round_up(a.kv.key_dim, 4)) * sizeof(float);
    attend<<<grid, kThreads, shared, static_cast<cudaStream_t>(executor.queue)>>>(params);
  }
};

}  // namespace

const AttentionKernel* cuda_simple_attention() {
  static const CudaSimpleAttention kernel;
  return &kernel;
}

}  // namespace millrace
