#include "hardware/cuda_device.h"
#include "kernels/argmax/argmax.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kMostRanks = 8;
static_assert(ArgmaxOp::kMostSkipped == 3, "best_of_part compares with three");

struct Best {
  float value;
  int32_t id;  // -1: none
};

// Ties go to the lowest id, so the result does not depend on how the row is split.
__device__ Best better(Best a, Best b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

__device__ Best best_of_warp(Best best) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(~0u, best.value, step), __shfl_xor_sync(~0u, best.id, step)};
    best = better(best, other);
  }
  return best;
}

struct Params {
  const float* logits;
  int64_t stride;
  int cols, ranks;  // ranks: blocks of a cluster, which share a row
  int32_t *ids, *chosen;
  const int32_t* known;  // [skipped][rows]
  int skipped, rows;
};

// The best token in this block's part of a row; valid in thread 0.
__device__ Best best_of_part(const Params& p, int64_t row, int rank) {
  __shared__ Best parts[kWarps];
  const float* logits = p.logits + row * p.stride;
  const int each = (p.cols + p.ranks - 1) / p.ranks, end = min(p.cols, (rank + 1) * each);
  int32_t skip[ArgmaxOp::kMostSkipped];
#pragma unroll
  for (int i = 0; i < ArgmaxOp::kMostSkipped; ++i) skip[i] = i < p.skipped ? p.known[i * p.rows + row] : -1;
  Best best{-INFINITY, -1};
#pragma unroll 8
  for (int i = rank * each + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const float value = logits[i];
    if (value > best.value && i != skip[0] && i != skip[1] && i != skip[2]) best = {value, i};
  }
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
  __syncthreads();
  return best_of_warp(threadIdx.x < kWarps ? parts[threadIdx.x] : Best{-INFINITY, -1});
}

#if __CUDA_ARCH__ >= 900
__device__ Best read_remote(const Best* local, int rank) {
  Best best;
  asm volatile(
      "{\n.reg .u32 remote;\nmapa.shared::cluster.u32 remote, %2, %3;\n"
      "ld.shared::cluster.f32 %0, [remote];\nld.shared::cluster.s32 %1, [remote + 4];\n}"
      : "=f"(best.value), "=r"(best.id)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(local))), "r"(rank)
      : "memory");
  return best;
}

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

__global__ void __launch_bounds__(kThreads) argmax(Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int row = static_cast<int>(blockIdx.x) / p.ranks, rank = static_cast<int>(blockIdx.x) % p.ranks;
  Best best = best_of_part(p, row, rank);
#if __CUDA_ARCH__ >= 900
  __shared__ Best mine;
  if (p.ranks > 1) {
    if (threadIdx.x == 0) mine = best;
    cluster_barrier();
    if (rank == 0 && threadIdx.x < 32) {
      const int lane = static_cast<int>(threadIdx.x);
      best = best_of_warp(lane < p.ranks ? read_remote(&mine, lane) : Best{-INFINITY, -1});
    }
    cluster_barrier();  // keeps this block's shared memory alive until the others have read it
  }
#endif
  if (rank == 0 && threadIdx.x == 0) {
    p.ids[row] = best.id;
    if (p.chosen != nullptr) p.chosen[row] = best.id;
  }
}

// Blocks per row: with few rows, several blocks share one, so that a single multiprocessor does not read a whole row.
int ranks_for(int64_t rows, const Hardware& hardware) {
  if (hardware.architecture != 90) return 1;
  int ranks = kMostRanks;
  while (ranks > 1 && rows * ranks > 2 * hardware.cores) ranks /= 2;
  return ranks;
}

class CudaArgmax final : public Kernel<ArgmaxOp> {
 public:
  std::string_view name() const override { return "cuda_rows"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows * p.cols), hardware, 0.3);
  }
  void run(const Args& a, const Executor& executor) const override {
    const int ranks = ranks_for(a.logits.rows, *executor.hardware);
    const Params params{a.logits.row<float>(0),
                        a.logits.stride,
                        static_cast<int>(a.logits.cols),
                        ranks,
                        a.ids,
                        a.chosen,
                        a.known,
                        a.skipped,
                        static_cast<int>(a.logits.rows)};
    const dim3 grid(static_cast<unsigned>(a.logits.rows * ranks));
    check_launch(launch_kernel(argmax, grid, kThreads, 0, cuda_launch(executor), params, ranks), "starting argmax");
  }
};

}  // namespace

KernelList<ArgmaxOp> ArgmaxOp::cuda() {
  static const CudaArgmax kernel;
  return {&kernel};
}

}  // namespace millrace
