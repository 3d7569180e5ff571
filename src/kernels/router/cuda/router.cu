// The router: a few rows in one launch, prompts in two. Nothing is read back, so that recorded steps replay.
#include <algorithm>

#include "base/rounding.h"
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/router/cuda/route_segments.cuh"
#include "kernels/router/cuda/route_together.cuh"

namespace millrace {
namespace {

constexpr int64_t kMostSegments = 128;  // each reads the counts of all

// Rows of one launch. Blocks share them as a cluster, which GPUs before Hopper do not have.
int64_t most_together(const Hardware& hardware) {
  return starts_early(hardware) ? kTogetherWarps * kMostTogetherBlocks : kTogetherWarps;
}

int64_t rows_of_segment(int64_t rows) { return round_up(ceil_div(rows, kMostSegments), kSegmentWarps); }

class CudaRouter final : public Kernel<RouterOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.experts + p.settings.shared <= kMostExperts &&
           p.settings.expert_groups <= kMostExpertGroups && p.settings.per_row <= p.experts;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const bool together = p.rows <= most_together(hardware);
    const double in_turn = together ? 1 : double(ceil_div(rows_of_segment(p.rows), kSegmentWarps));  // rows of a warp
    return (together ? 1 : 2) * hardware.ceilings.region_us + in_turn * (0.5 + 0.06 * p.settings.per_row) +
           gpu_us(4.0 * double(p.rows) * double(p.experts + 4 * p.settings.per_row), hardware, 0.2);
  }
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    if (p.rows <= most_together(hardware)) return 0;
    const int64_t groups = p.experts + p.settings.shared;  // fewer rows of the same bucket have no more segments
    return static_cast<size_t>(kMostSegments * groups) * sizeof(int32_t);
  }
  void run(const Args& a, const Executor& executor) const override {
    const int64_t experts = experts_of(a);
    const bool plain = a.choice_bias == nullptr && !chooses_groups(a.settings);
    const auto start_with = [&](auto each) {
      return plain ? start<each.value, true>(a, executor) : start<each.value, false>(a, executor);
    };
    check_cuda(experts <= 32    ? start_with(std::integral_constant<int, 1>())
               : experts <= 64  ? start_with(std::integral_constant<int, 2>())
               : experts <= 128 ? start_with(std::integral_constant<int, 4>())
               : experts <= 256 ? start_with(std::integral_constant<int, 8>())
                                : start_with(std::integral_constant<int, 16>()),
               "starting a router");
  }

 private:
  static int64_t experts_of(const Args& a) { return a.logits.cols - a.settings.gates_shared; }

  template <int kEach, bool kPlain>
  static cudaError_t start(const Args& a, const Executor& executor) {
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Routing& r = a.routing;
    const int experts = static_cast<int>(experts_of(a)), groups = experts + a.settings.shared;
    if (r.rows == 0) return cudaMemsetAsync(r.offsets, 0, static_cast<size_t>(groups + 1) * 4, step.stream);
    const auto* logits = a.logits.row<const float>(0);
    const CudaRouterParams params{.settings = a.settings,
                                  .logits = logits,
                                  .stride = a.logits.stride,
                                  .by_four = a.logits.stride % 4 == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0,
                                  .choice_bias = a.choice_bias,
                                  .expert_scale = a.expert_scale,
                                  .experts = experts,
                                  .rows = static_cast<int>(r.rows),
                                  .chosen = r.chosen,
                                  .weights = r.weights};
    LaunchShape shape;
    shape.most_shared = true;
    if (r.rows <= most_together(*executor.hardware)) {
      int blocks = 1;
      while (blocks * kTogetherWarps < r.rows) blocks *= 2;
      shape.grid = dim3(static_cast<unsigned>(blocks));
      shape.threads = kTogetherThreads;
      shape.cluster = blocks;
      shape.shared_bytes = static_cast<size_t>(kTogetherWarps) * RowScratch::bytes(params);
      return launch_kernel(route_together<kEach, kPlain>, shape, step, params, groups, r.order, r.offsets);
    }
    const int64_t rows = rows_of_segment(r.rows);
    const Segments segments{reinterpret_cast<int32_t*>(executor.workspace), static_cast<int>(ceil_div(r.rows, rows)),
                            static_cast<int>(rows), groups};
    shape.grid = dim3(static_cast<unsigned>(segments.count));
    shape.threads = kSegmentThreads;
    shape.shared_bytes = static_cast<size_t>(kSegmentWarps) * RowScratch::bytes(params);
    const cudaError_t routed = launch_kernel(route_segments<kEach, kPlain>, shape, step, params, segments);
    if (routed != cudaSuccess) return routed;
    shape.shared_bytes = 0;
    return launch_kernel(place_segments, shape, step, segments, r.chosen, params.rows, params.each(), r.order,
                         r.offsets);
  }
};

}  // namespace

KernelList<RouterOp> RouterOp::cuda() {
  static const CudaRouter kernel;
  return {&kernel};
}

}  // namespace millrace
