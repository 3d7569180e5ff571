// cuDNN's attention as a candidate for prompts. It needs a plan per number of rows, so only whole chunks use it; our
// kernel computes the remaining rows. If products exceed the range of f32, cuDNN returns NaN; our kernel then computes
// the result again.
#include <algorithm>
#include <bit>

#include "hardware/cuda/cudnn.h"
#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/cuda/kernels.h"
#include "kernels/attention/cuda/launch.h"
#include "kernels/attention/cuda/not_finite.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

constexpr int kFewestRows = 512, kLargestHead = 128;

// Lies after the counters, since other kernels share the workspace.
struct Workspace {
  size_t flag = kCudaAttentionCounters, log_sums = flag + 256, library, bytes;

  Workspace(int64_t heads, int64_t rows)
      : library(log_sums + static_cast<size_t>(heads * rows) * sizeof(float)),
        bytes(library + CudnnAttention::kWorkspaceBytes) {}
};

class CudnnPrompt final : public AttentionKernel {
 public:
  explicit CudnnPrompt(KernelList<AttentionOp> ours) : ours_(std::move(ours)) {}
  std::string_view name() const override { return "cudnn_prefill"; }

  // Loading the library takes most of a second, so it must be measured to be chosen.
  const AttentionKernel* variant_of(const Problem& p, const Hardware& hardware) const override {
    const auto can_run = [&](const AttentionKernel* kernel) { return kernel->can_run(p, hardware); };
    const auto found = std::find_if(ours_.begin(), ours_.end(), can_run);
    return found == ours_.end() ? nullptr : *found;
  }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (p.precision == Precision::Exact || p.invariant || p.window > 0 || p.softcap || p.sinks) return false;
    if (p.sequences != 1 || p.rows < kFewestRows || p.key_dim > kLargestHead) return false;
    return variant_of(p, hardware) != nullptr && CudnnAttention::available() && library().can_run(typical(p));
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return variant_of(p, hardware)->estimate_us(p, hardware);
  }
  // The first plan takes most of a second and 270 MB of host memory, so it must be faster by more than 2 %.
  double burden(const Problem&) const override { return 1.02; }
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    return std::max(Workspace(p.heads, p.rows).bytes, variant_of(p, hardware)->workspace_bytes(p, hardware));
  }

  void run(const Args& a, const Executor& executor) const override {
    const AttentionKernel& ours = *variant_of(problem_of(a).bucketed(), *executor.hardware);
    if (!is_whole_chunk(a)) return ours.run(a, executor);
    const int64_t rows = a.sequences[0].rows;
    const Workspace space(a.heads, rows);
    auto* log_sums = reinterpret_cast<float*>(executor.workspace + space.log_sums);
    if (!attend(a, log_sums, executor.workspace + space.library, executor)) return ours.run(a, executor);
    const AttentionResults results{cuda_matrix(rows_of(a.out, a)), rows, a.out.cols, log_sums, a.heads * rows};
    auto* flag = reinterpret_cast<int32_t*>(executor.workspace + space.flag);
    check_launch(launch_not_finite(results, flag, cuda_launch(executor).stream), "looking at attention");
    Args again = a;
    again.only_if = flag;
    Executor after = executor;
    after.overlap = false;
    ours.run(again, after);
  }

 private:
  static bool is_whole_chunk(const Args& a) {
    if (a.sequences.size() != 1) return false;
    const auto rows = static_cast<uint32_t>(a.sequences[0].rows);
    const bool alike = a.q.dtype == a.kv.dtype && a.out.dtype == a.kv.dtype;
    const bool by_eights = a.q.stride % 8 == 0 && a.out.stride % 8 == 0 && a.kv.key_dim % 8 == 0;
    return rows >= kFewestRows && std::has_single_bit(rows) && alike && by_eights && a.kv.pages > 0 && a.window == 0 &&
           a.softcap == 0 && a.sinks == nullptr && reinterpret_cast<uintptr_t>(a.tables.pages) % 16 == 0;
  }

  // A typical problem, to ask whether the library supports it.
  static CudnnAttentionProblem typical(const Problem& p) {
    const int64_t pages = (p.context + p.block_size - 1) / p.block_size, width = int64_t{p.heads} * p.key_dim;
    const auto rows = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(p.rows)));
    return {p.kv, p.heads, p.kv_heads, p.key_dim, p.block_size, pages, pages, rows, width, width, 1};
  }

  static Matrix rows_of(Matrix all, const Args& a) {
    all.data += static_cast<size_t>(a.sequences[0].first_row * all.stride) * info(all.dtype).bytes;
    return all;
  }

  static bool attend(const Args& a, float* log_sums, std::byte* workspace, const Executor& executor) {
    const CudnnAttentionProblem problem{
        a.kv.dtype,          a.heads,    a.kv.kv_heads, a.kv.key_dim, a.kv.block_size, a.kv.pages, a.tables.page_stride,
        a.sequences[0].rows, a.q.stride, a.out.stride,  a.scale};
    const CudnnAttentionArgs args{rows_of(a.q, a).data,
                                  a.kv.keys,
                                  a.kv.values,
                                  a.tables.pages,
                                  &a.tables.slices->rows,
                                  &a.tables.slices->length,
                                  rows_of(a.out, a).data,
                                  log_sums,
                                  workspace};
    return library().run(problem, args, static_cast<cudaStream_t>(executor.queue));
  }

  static CudnnAttention& library() { return per_cuda_device<CudnnAttention>(); }

  KernelList<AttentionOp> ours_;
};

}  // namespace

const AttentionKernel* cuda_cudnn_attention(const KernelList<AttentionOp>& prompts) {
  static const CudnnPrompt kernel(prompts);
  return &kernel;
}

}  // namespace millrace
