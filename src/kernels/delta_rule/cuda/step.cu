// One decode step of a gated delta net on Hopper: convolution, delta rule, norm and gate in one launch.
//
// A tile is the state of one sequence and value head, f32 [key_dim][value_dim]. Bulk copies bring tiles to shared
// memory ahead of their use and write them back. The first ones start before the preceding kernel has ended: no kernel
// of a step but this one touches the layer's states.
//
// The value heads of a key head are the blocks of a cluster. Each block convolves q and k itself, and no block shifts
// the convolution's state before all of them have read it.
#include <algorithm>

#include "hardware/cuda/check.h"
#include "kernels/cuda/values.cuh"
#include "kernels/delta_rule/cuda/kernels.h"
#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kMostDim = 128, kKeysOfThread = kMostDim / kWarps;
constexpr int kMostKept = 3;     // inputs that the convolution keeps
constexpr int kMostCluster = 8;  // what every Hopper GPU can launch
constexpr int kMostStages = 3;   // tiles of 64 KB in shared memory
constexpr size_t kSumBytes = 2 * kWarps * 32 * sizeof(float4);

struct StepParams {
  DeltaRuleShape shape;
  GpuMatrix x;  // inputs of the convolution
  const float* weight;
  std::byte* inputs;
  size_t inputs_stride;
  int kept, q_at, k_at, v_at;  // first channels of q, k and v
  GpuMatrix a, b, gate, out;
  const float *decay, *dt_bias, *norm;
  float epsilon;
  std::byte* state;
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  int items, stages;  // items: one for each sequence and key head

  __device__ int sequence(int item) const { return item / shape.key_heads; }
  __device__ int head(int item) const {  // of this block
    const int key_head = item % shape.key_heads, own = static_cast<int>(blockIdx.x);
    return shape.tiled ? own * shape.key_heads + key_head : key_head * static_cast<int>(gridDim.x) + own;
  }
  __device__ int tile_elements() const { return shape.key_dim * shape.value_dim; }
  __device__ float* tile(int item) const {
    auto* record = reinterpret_cast<float*>(state + static_cast<size_t>(slots[sequence(item)]) * stride);
    return record + int64_t{head(item)} * tile_elements();
  }
};

__device__ void store_bulk(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// One channel of the convolution, of one row.
struct Channel {
  float* state = nullptr;  // of the channel's first input; null: no channel
  int64_t stride = 0;
  float kept[kMostKept] = {}, own = 0;

  __device__ float convolve(const StepParams& p, int64_t row, int slot, int channel) {
    state = reinterpret_cast<float*>(p.inputs + static_cast<size_t>(slot) * p.inputs_stride) + channel;
    stride = p.x.cols;
    own = to_float(reinterpret_cast<const __nv_bfloat16*>(p.x.data)[row * p.x.stride + channel]);
    const float* weight = p.weight + int64_t{channel} * (p.kept + 1);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kMostKept; ++j) {
      if (j < p.kept) kept[j] = state[j * stride];
    }
#pragma unroll
    for (int j = 0; j < kMostKept; ++j) {
      if (j < p.kept) sum = fmaf(weight[j], kept[j], sum);
    }
    sum = fmaf(weight[p.kept], own, sum);
    return __fdividef(sum, 1 + __expf(-sum));
  }
  __device__ void shift(const StepParams& p) const {
#pragma unroll
    for (int j = 0; j < kMostKept; ++j) {
      if (j < p.kept) state[j * stride] = j + 1 < p.kept ? kept[min(j + 1, kMostKept - 1)] : own;
    }
  }
  static __device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
};

__device__ void add(float4& sum, float factor, const float4& x) {
  sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y);
  sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}

__device__ float dot(const float4& x, const float4& y) { return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w; }

// Warps share the keys, lanes have four columns each. S^T k and S^T q of the old state are summed in one round: with
// the change c the output is decay S^T q + (k q) c.
__global__ void __launch_bounds__(kThreads, 2) delta_step(const __grid_constant__ StepParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) float4 shared[];
  __shared__ __align__(16) float q[kMostDim], k[kMostDim], v[kMostDim];
  auto* sums = reinterpret_cast<float4(*)[kWarps][32]>(shared);  // [2][kWarps][32]
  float4* tiles = shared + kSumBytes / sizeof(float4);
  __shared__ __align__(8) uint64_t full[kMostStages];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int key_dim = p.shape.key_dim, fours = p.shape.value_dim / 4;
  const auto tile_bytes = static_cast<uint32_t>(p.tile_elements()) * 4;
  const auto load_tile = [&](int item, int stage) {
    arrive_expecting(&full[stage], tile_bytes);
    copy_bulk(tiles + stage * (p.tile_elements() / 4), p.tile(item), tile_bytes, &full[stage]);
  };
  const int first = static_cast<int>(blockIdx.y), step = static_cast<int>(gridDim.y);
  if (thread == 0) {
    for (int stage = 0; stage < p.stages; ++stage) init_barrier(&full[stage], 1);
    publish_barriers();
    for (int stage = 0; stage < p.stages && first + stage * step < p.items; ++stage)
      load_tile(first + stage * step, stage);
  }
  __syncthreads();
  let_next_kernel_start();
  wait_for_previous_kernel();

  int turn = 0;
  for (int item = first; item < p.items; item += step, ++turn) {
    const int sequence = p.sequence(item), h = p.head(item), slot = p.slots[sequence], stage = turn % p.stages;
    const int64_t row = p.slices[sequence].first_row;
    const int key_at = item % p.shape.key_heads * key_dim, value_at = h * p.shape.value_dim;
    Channel of_key, of_value;
    const int i = thread % kMostDim;
    const bool is_q = thread < kMostDim;
    (is_q ? q : k)[i] = i < key_dim ? of_key.convolve(p, row, slot, (is_q ? p.q_at : p.k_at) + key_at + i) : 0;
    if (is_q) v[i] = i < p.shape.value_dim ? of_value.convolve(p, row, slot, p.v_at + value_at + i) : 0;
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    const float x = p.a.get(row, h) + p.dt_bias[h];
    const float decay = expf(p.decay[h] * (x > 20 ? x : log1pf(expf(x))));
    const float beta = 1 / (1 + expf(-p.b.get(row, h)));
    __syncthreads();
    const float4 some_q = reinterpret_cast<const float4*>(q)[lane], some_k = reinterpret_cast<const float4*>(k)[lane];
    const float scale_of_q =
        rsqrtf((warp_sum(dot(some_q, some_q)) + DeltaRuleOp::kLengthEpsilon) * static_cast<float>(key_dim));
    const float scale_of_k = rsqrtf(warp_sum(dot(some_k, some_k)) + DeltaRuleOp::kLengthEpsilon);
    const float qk = warp_sum(dot(some_q, some_k));

    wait_barrier(&full[stage], turn / p.stages & 1);
    float4* tile = tiles + stage * (p.tile_elements() / 4) + lane;
    const auto key_of = [&](int n) { return n * kWarps + warp; };
    const auto inside = [&](int n) { return lane < fours && key_of(n) < key_dim; };
    float4 s[kKeysOfThread], by_k{}, by_q{};
#pragma unroll
    for (int n = 0; n < kKeysOfThread; ++n) {
      s[n] = inside(n) ? tile[key_of(n) * fours] : float4{};
      add(by_k, k[key_of(n)], s[n]);
      add(by_q, q[key_of(n)], s[n]);
    }
    sums[0][warp][lane] = by_k, sums[1][warp][lane] = by_q;
    __syncthreads();
    const auto total = [&](int kind) {
      float4 sum{};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) add(sum, 1, sums[kind][w][lane]);
      return sum;
    };
    const float4 known = total(0), values = reinterpret_cast<const float4*>(v)[lane];
    const float of_known = decay * scale_of_k;
    const float4 change{beta * (values.x - of_known * known.x), beta * (values.y - of_known * known.y),
                        beta * (values.z - of_known * known.z), beta * (values.w - of_known * known.w)};
#pragma unroll
    for (int n = 0; n < kKeysOfThread; ++n) {
      const float factor = k[key_of(n)] * scale_of_k;
      if (inside(n))
        tile[key_of(n) * fours] = {fmaf(factor, change.x, decay * s[n].x), fmaf(factor, change.y, decay * s[n].y),
                                   fmaf(factor, change.z, decay * s[n].z), fmaf(factor, change.w, decay * s[n].w)};
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (thread == 0) {
      store_bulk(p.tile(item), tiles + stage * (p.tile_elements() / 4), tile_bytes);
      // The stage of the previous turn is free once its tile was read. With one stage there is one turn.
      const int next = item + (p.stages - 1) * step;
      if (turn > 0 && next < p.items) {
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        load_tile(next, (turn - 1) % p.stages);
      }
    }
    if (warp == 1) {
      const float4 asked = total(1);
      const float of_old = decay * scale_of_q, of_change = qk * scale_of_k * scale_of_q;
      float result[4] = {fmaf(of_change, change.x, of_old * asked.x), fmaf(of_change, change.y, of_old * asked.y),
                         fmaf(of_change, change.z, of_old * asked.z), fmaf(of_change, change.w, of_old * asked.w)};
      const bool mine = lane < fours;
      float squares = 0;
#pragma unroll
      for (const float y : result) squares = mine ? fmaf(y, y, squares) : 0;
      const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(p.shape.value_dim) + p.epsilon);
#pragma unroll
      for (int c = 0; c < 4 && mine; ++c) {
        const float gate = p.gate.get(row, value_at + lane * 4 + c);
        p.out.set(row, value_at + lane * 4 + c,
                  result[c] * inverse * p.norm[lane * 4 + c] * __fdividef(gate, 1 + __expf(-gate)));
      }
    }
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (blockIdx.x == 0 && of_key.state != nullptr) of_key.shift(p);
    if (of_value.state != nullptr) of_value.shift(p);
  }
  if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

}  // namespace

bool can_step_at_once(const DeltaRuleOp::Args& a, const Hardware& hardware) {
  const DeltaRuleShape& s = a.shape;
  const CausalConvOp::Args& conv = *a.conv;
  const auto one_row = [](const SequenceSlice& slice) { return slice.rows == 1; };
  return hardware.architecture == 90 && std::all_of(a.sequences.begin(), a.sequences.end(), one_row) &&
         s.key_dim <= kMostDim && s.value_dim <= kMostDim && s.value_dim % 4 == 0 &&
         s.value_heads / s.key_heads <= kMostCluster && a.stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.state) % 16 == 0 && conv.x.dtype == DType::BF16 && conv.taps - 1 <= kMostKept &&
         conv.bias == nullptr && conv.silu && a.norm != nullptr;
}

void run_delta_step(const DeltaRuleOp::Args& a, const Executor& executor) {
  if (a.sequences.empty()) return;
  const DeltaRuleShape& s = a.shape;
  const CausalConvOp::Args& conv = *a.conv;
  const auto channel = [&](const Matrix& m) {
    return static_cast<int>((m.data - conv.out.data) / row_bytes(conv.out.dtype, 1));
  };
  const int cluster = s.value_heads / s.key_heads, items = static_cast<int>(a.sequences.size()) * s.key_heads;
  const int at_once = std::clamp(executor.hardware->cores / cluster, 1, items);
  const int stages = items <= at_once ? 1 : kMostStages;
  const StepParams params{.shape = s,
                          .x = conv.x,
                          .weight = conv.weight,
                          .inputs = conv.state,
                          .inputs_stride = conv.stride,
                          .kept = conv.taps - 1,
                          .q_at = channel(a.q),
                          .k_at = channel(a.k),
                          .v_at = channel(a.v),
                          .a = a.a,
                          .b = a.b,
                          .gate = a.gate,
                          .out = a.out,
                          .decay = a.decay,
                          .dt_bias = a.dt_bias,
                          .norm = a.norm,
                          .epsilon = a.epsilon,
                          .state = a.state,
                          .stride = a.stride,
                          .slices = a.tables.slices,
                          .slots = a.tables.slots,
                          .items = items,
                          .stages = stages};
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(at_once)),
      .threads = kThreads,
      .cluster = cluster,
      .shared_bytes = kSumBytes + static_cast<size_t>(stages * s.key_dim * s.value_dim) * sizeof(float),
      .most_shared = true};
  check_cuda(launch_kernel(delta_step, shape, {static_cast<cudaStream_t>(executor.queue), executor.overlap}, params),
             "starting a step of the delta rule");
}

}  // namespace millrace
