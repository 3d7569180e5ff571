// The RMS norm of each head of the delta rule's results, times silu(gate), in place.
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/delta_rule/cuda/kernels.h"

namespace millrace {
namespace {

constexpr int kWarps = 4;

struct GatedNormParams {
  CudaMatrix out, gate;
  const float* weight;
  float epsilon;
  int64_t rows;
  int heads, dim;
};

__device__ float rounded(float x, DType dtype) {
  return with_device_type(dtype, [&](auto type) { return to_float(from_float<decltype(type)>(x)); });
}

// One warp per row and head. The normed values are rounded before the gate multiplies them, as transformers does.
template <bool kWide>
__global__ void __launch_bounds__(kWarps * 32) norm_and_gate(const __grid_constant__ GatedNormParams p) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (index >= p.rows * p.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = index / p.heads, first = index % p.heads * p.dim;
  float squares = 0;
  for (int column = lane * 8; column < p.dim; column += 256) {
    const Eight x = load_eight<kWide>(p.out, row * p.out.stride + first + column, min(8, p.dim - column));
#pragma unroll
    for (const float value : x.at) squares = fmaf(value, value, squares);
  }
  const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(p.dim) + p.epsilon);
  for (int column = lane * 8; column < p.dim; column += 256) {
    const int count = min(8, p.dim - column);
    Eight x = load_eight<kWide>(p.out, row * p.out.stride + first + column, count);
    const Eight gate = load_eight<kWide>(p.gate, row * p.gate.stride + first + column, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float weight = i < count ? p.weight[column + i] : 0;
      const float normed = rounded(x.at[i] * inverse * weight, p.out.dtype);
      x.at[i] = normed * (gate.at[i] / (1 + expf(-gate.at[i])));
    }
    store_eight<kWide>(p.out, row * p.out.stride + first + column, x, count);
  }
}

}  // namespace

void run_gated_norm(const DeltaRuleOp::Args& a, const Executor& executor) {
  if (a.norm == nullptr || a.out.rows == 0) return;
  const DeltaRuleShape& s = a.shape;
  const GatedNormParams params{cuda_matrix(a.out), cuda_matrix(a.gate), a.norm,     a.epsilon,
                               a.out.rows,         s.value_heads,       s.value_dim};
  const dim3 grid(static_cast<unsigned>((params.rows * params.heads + kWarps - 1) / kWarps));
  const bool wide = moves_by_eights(params.out, s.value_dim) && moves_by_eights(params.gate, s.value_dim);
  check_launch(launch_kernel(wide ? norm_and_gate<true> : norm_and_gate<false>, grid, kWarps * 32, 0,
                             cuda_launch(executor), params),
               "starting the norm of a delta rule");
}

}  // namespace millrace
