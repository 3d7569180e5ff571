// RMS norms of the heads of q and k. In prompts they are bound by memory: a head stays in registers, and a thread has
// the loads of several rows in flight.
#include "kernels/cuda/heads.cuh"
#include "kernels/norm/cuda/launch.h"

namespace millrace {
namespace {

template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kHeadThreads) norm_heads(const __grid_constant__ CudaNormArgs a) {
  allow_dependents();
  const HeadPlace<kLanes> at(a.groups);
  const float* from = a.second_weight != nullptr && at.head >= a.second_from ? a.second_weight : a.weight;
  Eight weights;
#pragma unroll
  for (float& weight : weights.at) weight = 1;
  if (from != nullptr) weights = widen(from + (a.weights_per_group ? at.in_row() : at.column));
  wait_for_predecessors();
  const int first = static_cast<int>(blockIdx.y) * kRows;
  Eight x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = min(first + r, a.rows - 1);
    x[r] = widen(static_cast<const T*>(a.x.data) + row * a.x.stride + at.in_row());
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float squares = 0;
#pragma unroll
    for (const float value : x[r].at) squares = fmaf(value, value, squares);
    const float inverse = rsqrtf(head_sum<kLanes>(squares) / static_cast<float>(at.kDim) + a.epsilon);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[r].at[i] *= inverse * weights.at[i];
    if (at.inside && first + r < a.rows) {
      narrow(static_cast<T*>(a.out.data) + (first + r) * a.out.stride + at.in_row(), x[r]);
    }
  }
}

}  // namespace

bool are_head_norms(const CudaNormArgs& a) {
  const int dim = a.cols / a.groups;
  const auto aligned = [](const float* weight) { return reinterpret_cast<uintptr_t>(weight) % 16 == 0; };
  return a.groups > 1 && is_head_in_lanes(dim) && !a.layer && !a.accumulate && a.bias == nullptr &&
         a.x.dtype == a.out.dtype && aligned(a.weight) && aligned(a.second_weight) && moves_by_eights(a.x, dim) &&
         moves_by_eights(a.out, dim);
}

CudaError launch_head_norms(const CudaNormArgs& a, const CudaLaunch& launch) {
  const int dim = a.cols / a.groups;
  return with_type(a.x.dtype, [&](auto type) {
    return with_heads_in_lanes(a.rows, dim, [&](auto lanes, auto rows) {
      return launch_kernel(norm_heads<decltype(type), lanes(), rows()>, grid_of_heads(a.rows, a.groups, dim),
                           kHeadThreads, 0, launch, a);
    });
  });
}

}  // namespace millrace
