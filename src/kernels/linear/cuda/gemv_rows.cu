// GEMV for one token in one wave: every warp of a grid that fits on the device at once takes the same number of rows,
// and streams through them without a break. Warps never wait for each other once x is in shared memory, so that all
// end together.
#include "kernels/cuda/stamps.cuh"
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kBlocks = 2;  // on a multiprocessor
constexpr int kStep = 256;  // elements of a row that a warp reads at once
constexpr int kAhead = 8;   // steps that are under way: 64 KB on each multiprocessor

struct RowsParams {
  const void* weights;
  int64_t stride;  // elements
  const void* x;
  const float* norm;  // [k] or null: x is f32, and its RMS norm is what is multiplied
  float epsilon;
  int k, chunks, items;  // chunks of a row; items: outputs, of two rows each with gate_up
  LinearOutput out;
  Stamps stamps;
};

template <class T>
__device__ __forceinline__ float dot(uint4 w, uint4 x, float sum) {
  const uint32_t ws[4] = {w.x, w.y, w.z, w.w}, xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = unpack2<T>(ws[i]), b = unpack2<T>(xs[i]);
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
  }
  return sum;
}

// A warp's way through its rows, chunk by chunk. Each warp begins at a place of its own in K: rows a power of two apart
// would else ask the same memory channels all at once.
template <class T>
class RowStream {
 public:
  __device__ __forceinline__ explicit RowStream(const RowsParams& p)
      : p_(p),
        item_(static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32),
        chunk_(item_ % p.chunks),
        left_(p.chunks) {
    enter();
  }

  // Part `i` of the chunk that comes next.
  __device__ __forceinline__ uint4 load(int i) const {
    return load_stream_if(from_ + i * kStep, i * kStep < left_of_row_, policy_);
  }
  __device__ __forceinline__ void next() {
    chunk_ = chunk_ + 1 == p_.chunks ? 0 : chunk_ + 1;
    if (--left_ == 0) {
      left_ = p_.chunks;
      if (second_ || !p_.out.gate_up) item_ += static_cast<int>(gridDim.x) * kWarps;
      second_ = p_.out.gate_up && !second_;
    }
    enter();
  }

 private:
  __device__ __forceinline__ void enter() {
    const int64_t row = p_.out.gate_up ? item_ / 8 * 16 + item_ % 8 + (second_ ? 8 : 0) : item_;
    const int column = (chunk_ * kAhead * 32 + static_cast<int>(threadIdx.x) % 32) * 8;
    from_ = static_cast<const T*>(p_.weights) + row * p_.stride + column;
    left_of_row_ = item_ < p_.items ? p_.k - column : 0;
  }

  const RowsParams& p_;
  const T* from_;  // the lane's first element of the next chunk
  int item_, chunk_, left_, left_of_row_;
  uint64_t policy_ = evict_first_policy();
  bool second_ = false;
};

__device__ __forceinline__ float warp_total(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// x or its norm in shared memory; what lies behind its end up to the last chunk's is zero. kEach: fours of the norm for
// each thread, whose weights are fetched before the kernel that writes x has ended; 0: no norm.
template <class T, int kEach>
__device__ __forceinline__ void place_x(const RowsParams& p, T* to, int padded) {
  __shared__ float parts[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = p.k + thread * 8; i < padded; i += kThreads * 8) *reinterpret_cast<uint4*>(to + i) = {0, 0, 0, 0};
  if constexpr (kEach == 0) {
    wait_for_previous_kernel();
#pragma unroll 2
    for (int i = thread * 8; i < p.k; i += kThreads * 8) {
      *reinterpret_cast<uint4*>(to + i) = load_shared_input(static_cast<const T*>(p.x) + i);
    }
  } else {
    float4 weights[kEach], x[kEach];
    const auto column = [&](int e) { return (e * kThreads + thread) * 4; };
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (column(e) < p.k) weights[e] = *reinterpret_cast<const float4*>(p.norm + column(e));
    }
    wait_for_previous_kernel();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + column(e));
      x[e] = column(e) < p.k ? __ldcg(from) : float4{0, 0, 0, 0};
    }
    float squares = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) squares += x[e].x * x[e].x + x[e].y * x[e].y + x[e].z * x[e].z + x[e].w * x[e].w;
    squares = warp_total(squares);
    if (thread % 32 == 0) parts[thread / 32] = squares;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) total += parts[i];
    const float inverse = rsqrtf(total / static_cast<float>(p.k) + p.epsilon);
    struct alignas(8) Four {
      T at[4];
    };
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const Four four{rounded<T>(x[e].x * inverse * weights[e].x), rounded<T>(x[e].y * inverse * weights[e].y),
                      rounded<T>(x[e].z * inverse * weights[e].z), rounded<T>(x[e].w * inverse * weights[e].w)};
      if (column(e) < p.k) *reinterpret_cast<Four*>(to + column(e)) = four;
    }
  }
  __syncthreads();
}

// One row times x; the chunk after each is asked for as its registers become free.
template <class T>
__device__ __forceinline__ float multiply_row(const RowsParams& p, const T* x, int& chunk, uint4 (&ahead)[kAhead],
                                              RowStream<T>& stream) {
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int i = 0; i < p.chunks; ++i) {
    const T* from = x + (chunk * kAhead * 32 + static_cast<int>(threadIdx.x) % 32) * 8;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      sums[j % 2] = dot<T>(ahead[j], *reinterpret_cast<const uint4*>(from + j * kStep), sums[j % 2]);
      ahead[j] = stream.load(j);
    }
    stream.next();
    chunk = chunk + 1 == p.chunks ? 0 : chunk + 1;
  }
  return warp_total(sums[0] + sums[1]);
}

template <class T, int kNormEach>
__global__ void __launch_bounds__(kThreads, kBlocks) gemv_rows(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  p.stamps.start();
  RowStream<T> stream(p);
  uint4 ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) ahead[j] = stream.load(j);
  stream.next();
  p.stamps.mark_first(kAsked);
  place_x<T, kNormEach>(p, x, p.chunks * kAhead * kStep);
  p.stamps.mark_first(kWaited);
  let_next_kernel_start();
  int item = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32, chunk = item % p.chunks;
#pragma unroll 1
  for (; item < p.items; item += static_cast<int>(gridDim.x) * kWarps) {
    const int row = p.out.gate_up ? item / 8 * 16 + item % 8 : item;
    const float before = p.out.accumulate ? load_output(p.out, item) : 0;  // there when the row is done
    float y = multiply_row<T>(p, x, chunk, ahead, stream);
    if (p.out.bias != nullptr) y += p.out.bias[row];
    if (p.out.gate_up) {
      float up = multiply_row<T>(p, x, chunk, ahead, stream);
      if (p.out.bias != nullptr) up += p.out.bias[row + 8];
      y = silu_times(y, up);
    }
    if (threadIdx.x % 32 == 0) {
      LinearOutput out = p.out;
      out.accumulate = false;
      const float squares = store_four(out, 0, item, {y + before, 0, 0, 0}, 1);
      if (p.out.sum_squares != nullptr) atomicAdd(p.out.sum_squares, squares);
    }
  }
  p.stamps.mark_first(kStored);
}

constexpr int kNormShort = 4, kNormLong = 8;
constexpr int kMaxNormed = kNormLong * 4 * kThreads;

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.m == 1 && p.k % 8 == 0 &&
         2 * round_up(p.k, kAhead * kStep) <= 64 * 1024 && limits.capability >= 80 && (!p.gate_up || p.n % 16 == 0);
}

bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.k <= kMaxNormed;
}

// The warps with the most rows decide, though those can draw somewhat more than their share of the bandwidth.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t items = p.gate_up ? p.n / 2 : p.n, warps = int64_t{kBlocks} * limits.sms * kWarps;
  const double uneven = static_cast<double>(round_up(items, warps)) / static_cast<double>(items);
  return stream_us(p, limits, ceil_div(items, kWarps), kBlocks, 2.0) * std::clamp(0.7 + 0.3 * uneven, 1.0, 1.5);
}

template <class T, int kNormEach>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  RowsParams params{};
  params.weights = a.weights;
  params.stride = packed_linear_stride(p.k);
  params.x = a.x;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.k = static_cast<int>(p.k);
  params.chunks = static_cast<int>(ceil_div(p.k, kAhead * kStep));
  params.items = static_cast<int>(p.gate_up ? p.n / 2 : p.n);
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(std::min<int64_t>(ceil_div(params.items, kWarps), kBlocks * limits.sms)));
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<size_t>(params.chunks * kAhead * kStep) * sizeof(T);
  params.stamps = stamps_of_launch(shape.grid.x);
  return launch_kernel(gemv_rows<T, kNormEach>, shape, step, params);
}

template <class T>
cudaError_t launch_norm(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                        const CudaStep& step) {
  if (a.norm == nullptr) return launch<T, 0>(p, a, limits, step);
  if (!takes_norm(p, limits)) return cudaErrorInvalidValue;
  return p.k <= kMaxNormed / 2 ? launch<T, kNormShort>(p, a, limits, step) : launch<T, kNormLong>(p, a, limits, step);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  return p.format == DType::BF16 ? launch_norm<__nv_bfloat16>(p, a, limits, step)
                                 : launch_norm<__half>(p, a, limits, step);
}

}  // namespace

bool has_rows_for_all(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && (p.gate_up ? p.n / 2 : p.n) >= int64_t{kBlocks} * limits.sms * kWarps;
}

const CudaLinearKernel& gemv_rows_kernel() {
  static constexpr CudaLinearKernel kKernel{"gemv-rows", "gemv", can_run, estimate_us, run, takes_norm};
  return kKernel;
}

}  // namespace millrace
