#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/delta_rule/cuda/kernels.h"

namespace millrace {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16;     // rows whose q and k are prepared in shared memory at once
constexpr int kColumns = 16;  // of the state that one warp keeps in registers
constexpr int kGroups = 8;    // lanes that share a column; lane group g has the state's rows 8 n + g
constexpr int kMostKeyDim = 256;

struct Params {
  DeltaRuleShape shape;
  GpuMatrix q, k, v, a, b, out;
  const float *decay, *dt_bias;
  std::byte* state;
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  bool wide;                      // rows of the state are read by 16 bytes
  int32_t least_rows, most_rows;  // other slices are left out
};

// Inputs of up to kRows rows of one head; q and k are [kRows][dim] with zeros from key_dim on.
struct Prepared {
  float *q, *k, *decay, *beta;
};

__device__ void prepare(const Params& p, int h, int64_t first_row, int rows, int dim, const Prepared& to) {
  const int n = p.shape.key_dim, lane = threadIdx.x % 32;
  const int key_head = p.shape.tiled ? h % p.shape.key_heads : h / (p.shape.value_heads / p.shape.key_heads);
  for (int t = threadIdx.x / 32; t < rows; t += kWarps) {
    float squares_of_q = 0, squares_of_k = 0;
    for (int i = lane; i < dim; i += 32) {
      const float q = i < n ? p.q.get(first_row + t, int64_t{key_head} * n + i) : 0;
      const float k = i < n ? p.k.get(first_row + t, int64_t{key_head} * n + i) : 0;
      to.q[t * dim + i] = q;
      to.k[t * dim + i] = k;
      squares_of_q += q * q;
      squares_of_k += k * k;
    }
    const float of_q = rsqrtf((warp_sum(squares_of_q) + DeltaRuleOp::kLengthEpsilon) * n);
    const float of_k = rsqrtf(warp_sum(squares_of_k) + DeltaRuleOp::kLengthEpsilon);
    for (int i = lane; i < dim; i += 32) {
      to.q[t * dim + i] *= of_q;
      to.k[t * dim + i] *= of_k;
    }
    if (lane == 0) {
      const float x = p.a.get(first_row + t, h) + p.dt_bias[h];
      to.decay[t] = expf(p.decay[h] * (x > 20 ? x : log1pf(expf(x))));
      to.beta[t] = 1 / (1 + expf(-p.b.get(first_row + t, h)));
    }
  }
}

// The sum over the lane groups; every lane gets it.
__device__ float sum_of_groups(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// The part of a state that one thread keeps: rows 8 n + group, four adjacent columns.
template <int kPerThread>
struct Part {
  float at[kPerThread][4];

  template <class Body>
  static __device__ void for_each(const Params& p, float* state, int column, Body body) {
    const int group = threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < kPerThread; ++n) {
      const int row = n * kGroups + group;
      body(n, state + int64_t{row} * p.shape.value_dim + column, row < p.shape.key_dim);
    }
  }
  __device__ void load(const Params& p, float* state, int column) {
    for_each(p, state, column, [&](int n, const float* from, bool inside) {
      if (p.wide) {
        const auto four = inside && column < p.shape.value_dim ? *reinterpret_cast<const float4*>(from) : float4{};
        at[n][0] = four.x, at[n][1] = four.y, at[n][2] = four.z, at[n][3] = four.w;
        return;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) at[n][c] = inside && column + c < p.shape.value_dim ? from[c] : 0;
    });
  }
  __device__ void store(const Params& p, float* state, int column) const {
    for_each(p, state, column, [&](int n, float* to, bool inside) {
      if (p.wide) {
        if (inside && column < p.shape.value_dim)
          *reinterpret_cast<float4*>(to) = float4{at[n][0], at[n][1], at[n][2], at[n][3]};
        return;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (inside && column + c < p.shape.value_dim) to[c] = at[n][c];
      }
    });
  }
};

// A warp keeps kColumns columns of one head's state in registers over all rows of the sequence. The pass that updates
// the state for row t also multiplies it by k of row t + 1, so that each row has one round of shuffles.
template <int kPerThread>
__global__ void __launch_bounds__(kThreads) delta_rule(const __grid_constant__ Params p) {
  constexpr int kDim = kPerThread * kGroups;
  __shared__ float q[kRows * kDim], k[kRows * kDim], decays[kRows], betas[kRows];
  allow_dependents();
  wait_for_predecessors();
  const SliceTables::Slice slice = p.slices[blockIdx.z];
  if (slice.rows < p.least_rows || slice.rows > p.most_rows) return;
  const int h = static_cast<int>(blockIdx.y), lane = threadIdx.x % 32, group = lane / 4;
  const int column = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kColumns + lane % 4 * 4;
  const int64_t at = int64_t{h} * p.shape.value_dim;
  float* state =
      reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[blockIdx.z]) * p.stride) + at * p.shape.key_dim;
  Part<kPerThread> s;
  s.load(p, state, column);
  for (int begin = 0; begin < slice.rows; begin += kRows) {
    const int rows = min(kRows, slice.rows - begin);
    const int64_t first_row = slice.first_row + begin;
    __syncthreads();  // the previous rows may still be in use
    prepare(p, h, first_row, rows, kDim, {q, k, decays, betas});
    __syncthreads();
    float known[4] = {};
#pragma unroll
    for (int n = 0; n < kPerThread; ++n) {
      const float of_k = k[n * kGroups + group];
#pragma unroll
      for (int c = 0; c < 4; ++c) known[c] = fmaf(of_k, s.at[n][c], known[c]);
    }
    for (int t = 0; t < rows; ++t) {
      const float decay = decays[t], beta = betas[t];
      const int next = min(t + 1, rows - 1);
      float change[4], sum[4] = {}, known_next[4] = {};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float v = column + c < p.shape.value_dim ? p.v.get(first_row + t, at + column + c) : 0;
        change[c] = beta * (v - decay * sum_of_groups(known[c]));
      }
#pragma unroll
      for (int n = 0; n < kPerThread; ++n) {
        const int i = n * kGroups + group;
        const float of_q = q[t * kDim + i], of_k = k[t * kDim + i], of_next = k[next * kDim + i];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float x = fmaf(of_k, change[c], decay * s.at[n][c]);
          s.at[n][c] = x;
          sum[c] = fmaf(of_q, x, sum[c]);
          known_next[c] = fmaf(of_next, x, known_next[c]);
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        known[c] = known_next[c];
        const float out = sum_of_groups(sum[c]);
        if (group == 0 && column + c < p.shape.value_dim) p.out.set(first_row + t, at + column + c, out);
      }
    }
  }
  s.store(p, state, column);
}

class CudaDeltaRule final : public Kernel<DeltaRuleOp> {
 public:
  std::string_view name() const override { return "cuda_rows"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.shape.key_dim <= kMostKeyDim;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(8.0 * double(p.rows * p.shape.state_elements()), hardware, 0.8);
  }
  void run(const Args& a, const Executor& executor) const override {
    run_delta_rule_by_rows(a, executor, 1, std::numeric_limits<int32_t>::max());
    run_gated_norm(a, executor);
  }
};

void (*kernel_of(int key_dim))(Params) {
  if (key_dim <= 16) return delta_rule<2>;
  if (key_dim <= 32) return delta_rule<4>;
  if (key_dim <= 64) return delta_rule<8>;
  return key_dim <= 128 ? delta_rule<16> : delta_rule<32>;
}

}  // namespace

void run_delta_rule_by_rows(const DeltaRuleOp::Args& a, const Executor& executor, int32_t least_rows,
                            int32_t most_rows) {
  if (a.sequences.empty()) return;
  const DeltaRuleShape& s = a.shape;
  const int columns = kWarps * kColumns;
  const dim3 grid(static_cast<unsigned>((s.value_dim + columns - 1) / columns), static_cast<unsigned>(s.value_heads),
                  static_cast<unsigned>(a.sequences.size()));
  const bool wide = s.value_dim % 4 == 0 && a.stride % 16 == 0 && reinterpret_cast<uintptr_t>(a.state) % 16 == 0;
  const Params params{s,
                      a.q,
                      a.k,
                      a.v,
                      a.a,
                      a.b,
                      a.out,
                      a.decay,
                      a.dt_bias,
                      a.state,
                      a.stride,
                      a.tables.slices,
                      a.tables.slots,
                      wide,
                      least_rows,
                      most_rows};
  check_launch(launch_kernel(kernel_of(s.key_dim), grid, kThreads, 0, cuda_launch(executor), params),
               "starting the delta rule");
}

const Kernel<DeltaRuleOp>& delta_rule_by_rows() {
  static const CudaDeltaRule kernel;
  return kernel;
}

KernelList<DeltaRuleOp> DeltaRuleOp::cuda() { return {&delta_rule_by_chunks(), &delta_rule_by_rows()}; }

}  // namespace millrace
