#include "kernels/cuda/vectors.cuh"
#include "kernels/embedding/cuda/launch.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;

template <bool kWide>
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ CudaGatherArgs a) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.x, known_id = a.ids[row],
                id = known_id < 0 && a.chosen != nullptr ? a.chosen[~known_id] : known_id;
  const bool known = id >= 0 && id < a.entries;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < a.cols; column += kThreads * 8) {
    const int count = min(a.cols - column, 8);
    const int64_t to = row * a.out.stride + column;
    Eight x = {}, before = {};
    if (known) x = load_eight<kWide>(a.table, id * a.table.stride + column, count);
    if (a.accumulate) before = load_eight<kWide>(a.out, to, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.at[i] = before.at[i] + x.at[i] * a.scale;
    store_eight<kWide>(a.out, to, x, count);
  }
}

}  // namespace

CudaError launch_cuda_gather(const CudaGatherArgs& args, const CudaLaunch& launch) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  const bool wide = moves_by_eights(args.table, args.cols) && moves_by_eights(args.out, args.cols);
  return launch_kernel(wide ? gather_kernel<true> : gather_kernel<false>, dim3(static_cast<unsigned>(args.rows)),
                       kThreads, 0, launch, args);
}

}  // namespace millrace
