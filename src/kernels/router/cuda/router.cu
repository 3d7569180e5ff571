// The router: a few rows in one launch, prompts in four. Nothing is read back, so that recorded steps replay.
#include <algorithm>

#include "base/rounding.h"
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/router/cuda/route_row.cuh"
#include "kernels/router/cuda/sort_pairs.cuh"

namespace millrace {
namespace {

constexpr int kTogetherWarps = 16, kTogetherRows = 64;  // one launch for so many rows
constexpr int kRouteWarps = 4;
constexpr int kMostSegments = 128, kSegmentWarps = 8, kSegmentPairs = 256;

struct SortParams {
  const int32_t* chosen;
  int32_t *order, *offsets, *counts;  // counts: [segments][groups]
  int pairs, groups, segments, each;  // groups: experts and shared ones
};

// Routes rows and sorts their pairs in one block. Shared memory: scores [warps][experts] if the settings have groups,
// then counts [segments][groups].
template <int kEach>
__global__ void __launch_bounds__(32 * kTogetherWarps, 1)
    route_together(const __grid_constant__ CudaRouterParams p, const __grid_constant__ SortParams s) {
  extern __shared__ __align__(16) double scores[];
  __shared__ int32_t sums[32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  auto* counts = reinterpret_cast<int32_t*>(scores + (chooses_groups(p.settings) ? kTogetherWarps * p.experts : 0));
  let_next_kernel_start();
  for (int i = static_cast<int>(threadIdx.x); i < s.segments * s.groups; i += 32 * kTogetherWarps) counts[i] = 0;
  wait_for_previous_kernel();
  for (int row = warp; row < p.rows; row += kTogetherWarps) {
    const int64_t first = static_cast<int64_t>(row) * (p.settings.per_row + p.settings.shared);
    RowOfExperts<kEach>(p, row, scores + warp * p.experts).route(p.chosen + first, p.weights + first);
    __syncwarp();
  }
  __syncthreads();  // also makes `chosen` visible to the block
  const int begin = min(s.pairs, warp * s.each), end = min(s.pairs, begin + s.each);
  if (warp < s.segments) count_pairs(s.chosen, begin, end, counts + warp * s.groups);
  __syncthreads();
  scan_counts(counts, s.segments, s.groups, s.offsets, sums);
  if (warp < s.segments) place_pairs(s.chosen, begin, end, counts + warp * s.groups, s.order);
}

template <int kEach>
__global__ void __launch_bounds__(32 * kRouteWarps) route_rows(const __grid_constant__ CudaRouterParams p) {
  __shared__ double scores[kRouteWarps][32 * kEach];
  const int warp = static_cast<int>(threadIdx.x) / 32, row = static_cast<int>(blockIdx.x) * kRouteWarps + warp;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (row >= p.rows) return;
  const int64_t first = static_cast<int64_t>(row) * (p.settings.per_row + p.settings.shared);
  RowOfExperts<kEach>(p, row, scores[warp]).route(p.chosen + first, p.weights + first);
}

__device__ int segment_of_warp() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32; }

__global__ void __launch_bounds__(32 * kSegmentWarps) count_segments(const __grid_constant__ SortParams s) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int segment = segment_of_warp(), lane = static_cast<int>(threadIdx.x) % 32;
  if (segment >= s.segments) return;
  int32_t* counts = s.counts + segment * s.groups;
  for (int e = lane; e < s.groups; e += 32) counts[e] = 0;
  __syncwarp();
  const int begin = min(s.pairs, segment * s.each);
  count_pairs(s.chosen, begin, min(s.pairs, begin + s.each), counts);
}

__global__ void __launch_bounds__(kMostExperts) scan_segments(const __grid_constant__ SortParams s) {
  __shared__ int32_t sums[32];
  let_next_kernel_start();
  wait_for_previous_kernel();
  scan_counts(s.counts, s.segments, s.groups, s.offsets, sums);
}

__global__ void __launch_bounds__(32 * kSegmentWarps) place_segments(const __grid_constant__ SortParams s) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int segment = segment_of_warp();
  if (segment >= s.segments) return;
  const int begin = min(s.pairs, segment * s.each);
  place_pairs(s.chosen, begin, min(s.pairs, begin + s.each), s.counts + segment * s.groups, s.order);
}

int segments_of(int64_t pairs) {
  return static_cast<int>(std::clamp<int64_t>(pairs / kSegmentPairs, 1, kMostSegments));
}

class CudaRouter final : public Kernel<RouterOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.experts + p.settings.shared <= kMostExperts &&
           p.settings.expert_groups <= kMostExpertGroups && p.settings.per_row <= p.experts;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double launches = p.rows <= kTogetherRows ? 1 : 4;
    const double choices = double(ceil_div(p.rows, kTogetherWarps)) * p.settings.per_row * 0.1;
    return launches * hardware.ceilings.region_us + (p.rows <= kTogetherRows ? choices : 0) +
           gpu_us(4.0 * double(p.rows) * double(p.experts + 4 * p.settings.per_row), hardware, 0.2);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    if (p.rows <= kTogetherRows) return 0;
    const int64_t groups = p.experts + p.settings.shared;
    return static_cast<size_t>(segments_of(p.rows * p.settings.pairs_of_row()) * groups) * sizeof(int32_t);
  }
  void run(const Args& a, const Executor& executor) const override {
    const int64_t experts = experts_of(a);
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const cudaError_t status = experts <= 32    ? start<1>(a, executor, step)
                               : experts <= 64  ? start<2>(a, executor, step)
                               : experts <= 128 ? start<4>(a, executor, step)
                               : experts <= 256 ? start<8>(a, executor, step)
                                                : start<16>(a, executor, step);
    check_cuda(status, "starting a router");
  }

 private:
  static int64_t experts_of(const Args& a) { return a.logits.cols - a.settings.gates_shared; }

  template <int kEach>
  static cudaError_t start(const Args& a, const Executor& executor, const CudaStep& step) {
    const Routing& r = a.routing;
    const int experts = static_cast<int>(experts_of(a)), groups = experts + a.settings.shared,
              rows = static_cast<int>(r.rows);
    const int pairs = static_cast<int>(r.pairs());
    if (rows == 0) return cudaMemsetAsync(r.offsets, 0, static_cast<size_t>(groups + 1) * 4, step.stream);
    const CudaRouterParams params{a.settings,
                                  a.logits.row<const float>(0),
                                  a.logits.stride,
                                  a.choice_bias,
                                  a.expert_scale,
                                  experts,
                                  rows,
                                  r.chosen,
                                  r.weights};
    SortParams sort{r.chosen, r.order, r.offsets, nullptr, pairs, groups, 0, 0};
    if (rows <= kTogetherRows) {
      sort.segments = static_cast<int>(std::clamp<int64_t>(ceil_div(pairs, 32), 1, kTogetherWarps));
      sort.each = static_cast<int>(round_up(ceil_div(pairs, sort.segments), 32));
      const size_t scores = chooses_groups(a.settings) ? kTogetherWarps * sizeof(double) : 0;
      const auto counts = static_cast<size_t>(sort.segments) * 4;
      const size_t shared = static_cast<size_t>(experts) * scores + static_cast<size_t>(groups) * counts;
      return launch_kernel(route_together<kEach>, {dim3(1), 32 * kTogetherWarps, 1, shared}, step, params, sort);
    }
    sort.segments = segments_of(pairs);
    sort.each = static_cast<int>(round_up(ceil_div(pairs, sort.segments), 32));
    sort.counts = reinterpret_cast<int32_t*>(executor.workspace);
    const dim3 row_blocks(static_cast<unsigned>(ceil_div(rows, kRouteWarps)));
    const dim3 segment_blocks(static_cast<unsigned>(ceil_div(sort.segments, kSegmentWarps)));
    cudaError_t status = launch_kernel(route_rows<kEach>, {row_blocks, 32 * kRouteWarps}, step, params);
    if (status == cudaSuccess) status = launch_kernel(count_segments, {segment_blocks, 32 * kSegmentWarps}, step, sort);
    if (status == cudaSuccess) status = launch_kernel(scan_segments, {dim3(1), kMostExperts}, step, sort);
    if (status == cudaSuccess) status = launch_kernel(place_segments, {segment_blocks, 32 * kSegmentWarps}, step, sort);
    return status;
  }
};

}  // namespace

KernelList<RouterOp> RouterOp::cuda() {
  static const CudaRouter kernel;
  return {&kernel};
}

}  // namespace millrace
