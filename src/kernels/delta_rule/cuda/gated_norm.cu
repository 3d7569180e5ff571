// The RMS norm of each head of the delta rule's results, times silu(gate), in place.
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/heads.cuh"
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

// The same for heads that a few lanes hold. The output is rounded to 16 bits, which hides the errors of the fast
// functions.
template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kHeadThreads) norm_and_gate_heads(const __grid_constant__ GatedNormParams p) {
  allow_dependents();
  const HeadPlace<kLanes> at(p.heads);
  const Eight weights = widen(p.weight + at.column);
  wait_for_predecessors();
  const int64_t first = int64_t{blockIdx.y} * kRows;
  Eight x[kRows], gate[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = min(first + r, p.rows - 1);
    x[r] = widen(static_cast<const T*>(p.out.data) + row * p.out.stride + at.in_row());
    gate[r] = widen(static_cast<const T*>(p.gate.data) + row * p.gate.stride + at.in_row());
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float squares = 0;
#pragma unroll
    for (const float value : x[r].at) squares = fmaf(value, value, squares);
    const float inverse = rsqrtf(head_sum<kLanes>(squares) / static_cast<float>(at.kDim) + p.epsilon);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float normed = to_float(from_float<T>(x[r].at[i] * inverse * weights.at[i])), g = gate[r].at[i];
      x[r].at[i] = normed * __fdividef(g, 1 + __expf(-g));
    }
    if (at.inside && first + r < p.rows) {
      narrow(static_cast<T*>(p.out.data) + (first + r) * p.out.stride + at.in_row(), x[r]);
    }
  }
}

bool are_heads_in_lanes(const GatedNormParams& p) {
  return is_head_in_lanes(p.dim) && p.out.dtype == p.gate.dtype && p.out.dtype != DType::F32 &&
         reinterpret_cast<uintptr_t>(p.weight) % 16 == 0;
}

CudaError launch_heads(const GatedNormParams& p, const CudaLaunch& launch) {
  const auto rows_of_step = static_cast<int>(p.rows);
  const auto with = [&]<class T>(T) {
    return with_heads_in_lanes(rows_of_step, p.dim, [&](auto lanes, auto rows) {
      return launch_kernel(norm_and_gate_heads<T, lanes(), rows()>, grid_of_heads(rows_of_step, p.heads, p.dim),
                           kHeadThreads, 0, launch, p);
    });
  };
  return p.out.dtype == DType::BF16 ? with(__nv_bfloat16{}) : with(__half{});
}

}  // namespace

void run_gated_norm(const DeltaRuleOp::Args& a, const Executor& executor) {
  if (a.norm == nullptr || a.out.rows == 0) return;
  const DeltaRuleShape& s = a.shape;
  const GatedNormParams params{cuda_matrix(a.out), cuda_matrix(a.gate), a.norm,     a.epsilon,
                               a.out.rows,         s.value_heads,       s.value_dim};
  const dim3 grid(static_cast<unsigned>((params.rows * params.heads + kWarps - 1) / kWarps));
  const bool wide = moves_by_eights(params.out, s.value_dim) && moves_by_eights(params.gate, s.value_dim);
  if (wide && are_heads_in_lanes(params)) {
    return check_launch(launch_heads(params, cuda_launch(executor)), "starting the norm of a delta rule");
  }
  check_launch(launch_kernel(wide ? norm_and_gate<true> : norm_and_gate<false>, grid, kWarps * 32, 0,
                             cuda_launch(executor), params),
               "starting the norm of a delta rule");
}

}  // namespace millrace
