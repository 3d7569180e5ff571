// GEMV for one token in one wave: the grid fits on the device at once, and each warp takes the same number of rows and
// streams through them without a break. Once x is in shared memory, warps never wait for each other, so all end
// together.
//
// Blocks of the next kernel start as the blocks of this one end, one by one, and then wait for x. Until then they can
// request what fits their registers, and as much again in shared memory.
#include <algorithm>

#include "kernels/cuda/stamps.cuh"
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/plain/row_stream.cuh"

namespace millrace {
namespace {

struct RowsParams {
  RowWork work;
  const void* x;
  const float* norm;  // [k] or null: x is f32, and its RMS norm is multiplied
  float epsilon;
  bool holds;  // shared memory has space for one chunk per warp
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

__device__ __forceinline__ float warp_total(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// A thread's weights of the norm, as kEach vectors of four; 0: no norm. They are requested first: otherwise they would
// arrive after all of the rows.
template <int kEach>
struct NormWeights {
  float4 at[kEach > 0 ? kEach : 1];

  __device__ __forceinline__ static int column(int e) { return (e * kRowThreads + static_cast<int>(threadIdx.x)) * 4; }
  __device__ __forceinline__ explicit NormWeights(const RowsParams& p) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (column(e) < p.work.k) at[e] = load_early(p.norm + column(e));
    }
  }
};

// Stores x or its norm in shared memory, padded with zeros to a multiple of a chunk.
template <class T, int kEach>
__device__ __forceinline__ void place_x(const RowsParams& p, T* to, int padded, const NormWeights<kEach>& norm) {
  __shared__ float parts[kRowWarps];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = p.work.k + thread * 8; i < padded; i += kRowThreads * 8)
    *reinterpret_cast<uint4*>(to + i) = {0, 0, 0, 0};
  if constexpr (kEach == 0) {
    wait_for_previous_kernel();
    constexpr int kAtOnce = 8;  // one memory latency for all of them
#pragma unroll 1
    for (int first = thread * 8; first < p.work.k; first += kAtOnce * kRowThreads * 8) {
      uint4 x[kAtOnce];
      const auto column = [&](int e) { return first + e * kRowThreads * 8; };
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        x[e] = load_shared_input_if(static_cast<const T*>(p.x) + column(e), column(e) < p.work.k);
      }
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        if (column(e) < p.work.k) *reinterpret_cast<uint4*>(to + column(e)) = x[e];
      }
    }
  } else {
    float4 x[kEach];
    const auto& weights = norm.at;
    const auto column = [&](int e) { return norm.column(e); };
    wait_for_previous_kernel();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + column(e));
      x[e] = column(e) < p.work.k ? __ldcg(from) : float4{0, 0, 0, 0};
    }
    float squares = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) squares += x[e].x * x[e].x + x[e].y * x[e].y + x[e].z * x[e].z + x[e].w * x[e].w;
    squares = warp_total(squares);
    if (thread % 32 == 0) parts[thread / 32] = squares;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int i = 0; i < kRowWarps; ++i) total += parts[i];
    const float inverse = rsqrtf(total / static_cast<float>(p.work.k) + p.epsilon);
    struct alignas(8) Four {
      T at[4];
    };
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const Four four{rounded<T>(x[e].x * inverse * weights[e].x), rounded<T>(x[e].y * inverse * weights[e].y),
                      rounded<T>(x[e].z * inverse * weights[e].z), rounded<T>(x[e].w * inverse * weights[e].w)};
      if (column(e) < p.work.k) *reinterpret_cast<Four*>(to + column(e)) = four;
    }
  }
  __syncthreads();
}

// The chunks of a warp in order. The first is in registers, the second waits in shared memory if there is space.
// Further chunks come to registers, each requested when the one before is consumed.
template <class T, bool kTail>
struct RowChunks {
  RowStream<T, kTail> stream;
  uint4 ahead[kRowAhead];
  const uint8_t* held;  // this lane's part
  int until_held;       // chunks left before the held one

  __device__ __forceinline__ RowChunks(const RowsParams& p, uint8_t* room)
      : stream(p.work), held(room), until_held(p.holds ? 1 : -1) {
#pragma unroll
    for (int j = 0; j < kRowAhead; ++j) ahead[j] = stream.load(j);
    stream.next();
    if (!p.holds || stream.ended()) return;
    stream.copy(room);
    stream.next();
  }

  // Adds chunk `chunk` of a row to its sums.
  __device__ __forceinline__ void multiply(const T* x, int chunk, float (&sums)[2]) {
    x += chunk * kRowChunk + static_cast<int>(threadIdx.x) % 32 * 8;
    if (until_held-- == 0) {
      asm volatile("cp.async.wait_all;" ::: "memory");  // waits for this lane's copies, which no other lane reads
#pragma unroll
      for (int j = 0; j < kRowAhead; ++j) sums[j % 2] = dot<T>(part(held, j), part(x, j), sums[j % 2]);
      return;
    }
#pragma unroll
    for (int j = 0; j < kRowAhead; ++j) {
      sums[j % 2] = dot<T>(ahead[j], part(x, j), sums[j % 2]);
      ahead[j] = stream.load(j);
    }
    stream.next();
  }

 private:
  __device__ __forceinline__ static uint4 part(const void* from, int j) {
    return *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(from) + j * kRowStep * sizeof(T));
  }
};

// One row times x, starting at chunk `chunk`.
template <class T, bool kTail>
__device__ __forceinline__ float multiply_row(int count, const T* x, int& chunk, RowChunks<T, kTail>& chunks) {
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    chunks.multiply(x, chunk, sums);
    chunk = chunk + 1 == count ? 0 : chunk + 1;
  }
  return warp_total(sums[0] + sums[1]);
}

// Executed by one thread. `y` is the item's row, or its gate row with `up` as its up row.
__device__ __forceinline__ void store_item(const LinearOutput& to, int item, float y, float up, float before) {
  const int row = to.gate_up ? item / 8 * 16 + item % 8 : item;
  if (to.bias != nullptr) y += to.bias[row];
  if (to.gate_up) {
    if (to.bias != nullptr) up += to.bias[row + 8];
    y = silu_times(y, up);
  }
  LinearOutput out = to;
  out.accumulate = false;
  const float squares = store_four(out, 0, item, {y + before, 0, 0, 0}, 1);
  if (to.sum_squares != nullptr) atomicAdd(to.sum_squares, squares);
}

__device__ __forceinline__ float sum_of(const float* from, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += from[i];
  return sum;
}

// The tail: items whose chunks are shared by the warps of a block.
template <class T>
__device__ __forceinline__ void multiply_tail(const RowsParams& p, const T* x, RowChunks<T, true>& chunks) {
  __shared__ float sums_of_chunks[kMostTailChunks];
  const RowWork& work = p.work;
  const int thread = static_cast<int>(threadIdx.x), first = thread / 32 * work.tail_each, each = work.item_chunks();
#pragma unroll 1
  for (int i = first; i < min(first + work.tail_each, work.tail_items * each); ++i) {
    float sums[2] = {0, 0};
    chunks.multiply(x, i % work.chunks, sums);
    const float sum = warp_total(sums[0] + sums[1]);
    if (thread % 32 == 0) sums_of_chunks[i] = sum;
  }
  __syncthreads();
  const int item = work.whole + static_cast<int>(blockIdx.x) * work.tail_items + thread;
  if (thread >= work.tail_items || item >= work.items) return;
  const float* own = sums_of_chunks + thread * each;
  const float y = sum_of(own, work.chunks), up = work.gate_up ? sum_of(own + work.chunks, work.chunks) : 0;
  store_item(p.out, item, y, up, p.out.accumulate ? load_output(p.out, item) : 0);
}

// Element offset of a lane's part of its warp's chunk, after x.
__device__ __forceinline__ int chunk_place() {
  return static_cast<int>(threadIdx.x) / 32 * kRowChunk + static_cast<int>(threadIdx.x) % 32 * 8;
}

template <class T, int kNormEach, bool kTail>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) gemv_rows(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(128) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  p.stamps.start();
  const NormWeights<kNormEach> norm(p);
  const int padded = p.work.chunks * kRowChunk;
  RowChunks<T, kTail> chunks(p, shared + (padded + chunk_place()) * sizeof(T));
  p.stamps.mark_first(kAsked);
  place_x<T, kNormEach>(p, x, padded, norm);
  p.stamps.mark_first(kWaited);
  let_next_kernel_start();
  int item = static_cast<int>(blockIdx.x) * kRowWarps + static_cast<int>(threadIdx.x) / 32;
  int chunk = item % p.work.chunks;
#pragma unroll 1
  for (; item < (kTail ? p.work.whole : p.work.items); item += static_cast<int>(gridDim.x) * kRowWarps) {
    const float before = p.out.accumulate ? load_output(p.out, item) : 0;  // arrives while the row is multiplied
    const float y = multiply_row(p.work.chunks, x, chunk, chunks);
    const float up = p.work.gate_up ? multiply_row(p.work.chunks, x, chunk, chunks) : 0;
    if (threadIdx.x % 32 == 0) store_item(p.out, item, y, up, before);
  }
  if constexpr (kTail) multiply_tail(p, x, chunks);
  p.stamps.mark_first(kStored);
}

constexpr int kNormShort = 4, kNormLong = 8;
constexpr int kMaxNormed = kNormLong * 4 * kRowThreads;

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.m == 1 && p.k % 8 == 0 &&
         2 * round_up(p.k, kRowChunk) <= 64 * 1024 && limits.capability >= 80 && (!p.gate_up || p.n % 16 == 0);
}

bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.k <= kMaxNormed;
}

// Whether the blocks of a multiprocessor have space for one chunk per warp besides x; each block also needs a little
// extra.
bool holds_chunks(const CudaLinearProblem& p, const CudaLimits& limits) {
  return kRowBlocks * (2 * round_up(p.k, kRowChunk) + 2 * kRowWarps * kRowChunk + 2048) <=
         (shared_kilobytes(limits) + 1) * 1024;
}

// The warps with the most chunks determine the time. They can exceed their fair share of the bandwidth slightly.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int grid = row_grid(p, limits), warps = kRowBlocks * limits.sms * kRowWarps;
  const RowWork work = row_work(p, nullptr, grid);
  const double uneven =
      static_cast<double>(most_chunks(work, grid) * warps) / (static_cast<double>(work.items) * work.item_chunks());
  return stream_us(p, limits, ceil_div(work.items, kRowWarps), kRowBlocks, 1.3) *
         std::clamp(0.75 + 0.25 * uneven, 1.0, 1.4);
}

template <class T, int kNormEach>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  const int grid = row_grid(p, limits);
  RowsParams params{};
  params.work = row_work(p, a.weights, grid);
  params.x = a.x;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.holds = holds_chunks(p, limits);
  params.out = linear_output(p, a);
  params.stamps = stamps_of_launch(static_cast<unsigned>(grid));
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(grid));
  shape.threads = kRowThreads;
  const int held = params.holds ? kRowWarps : 0;
  shape.shared_bytes = static_cast<size_t>((params.work.chunks + held) * kRowChunk) * sizeof(T);
  return params.work.whole < params.work.items ? launch_kernel(gemv_rows<T, kNormEach, true>, shape, step, params)
                                               : launch_kernel(gemv_rows<T, kNormEach, false>, shape, step, params);
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
  return can_run(p, limits) && row_items(p) >= int64_t{kRowBlocks} * limits.sms * kRowWarps;
}

const CudaLinearKernel& gemv_rows_kernel() {
  static constexpr CudaLinearKernel kKernel{"gemv-rows", can_run, estimate_us, run, takes_norm};
  return kKernel;
}

}  // namespace millrace
