// Prompts over a KV cache in 8 bits: a kernel writes the keys and values that the prompts attend to as f16 into the
// workspace, and a prefill kernel for f16 reads them there. A prompt uses each key for many rows, so the copy costs
// little.
#include <algorithm>

#include "hardware/cuda_device.h"
#include "kernels/attention/cuda/eight_bits.cuh"
#include "kernels/attention/cuda/kernels.h"
#include "kernels/attention/cuda/launch.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
// Prefill kernels may load a tile from before the window and weigh it with zero, so it must hold numbers.
constexpr int kBeforeWindow = 256;

struct Params {
  const std::byte *keys, *values;
  uint4 *wide_keys, *wide_values;  // [sequences][pages_each] pages
  int32_t* wide_pages;             // [sequences][pages_each]
  const SliceTables::Slice* slices;
  const int32_t* pages;
  int64_t page_stride;
  int kv_heads, head_dim, block_size, window, pages_each;
  bool fp8;
};

__device__ uint4 eight_of(const Params& p, const std::byte* page, int row, int piece) {
  if (p.fp8) {
    return expand_fp8(*reinterpret_cast<const uint2*>(page + (static_cast<int64_t>(row) * p.head_dim + piece * 8)));
  }
  const int64_t block = static_cast<int64_t>(row) * (p.head_dim / 32) + piece / 4;
  const auto* halves = reinterpret_cast<const uint16_t*>(page + block * 34);  // scale, then quants
  const uint16_t* quants = halves + 1 + piece % 4 * 4;
  return expand_q8(quants[0] | quants[1] << 16, quants[2] | quants[3] << 16, halves[0]);
}

// Grid: (page of the sequence, sequence, keys or values).
__global__ void __launch_bounds__(kThreads) widen_pages(const __grid_constant__ Params p) {
  allow_dependents();
  wait_for_predecessors();
  const SliceTables::Slice slice = p.slices[blockIdx.y];
  const int first = static_cast<int>(blockIdx.x) * p.block_size, length = slice.past + slice.rows;
  if (slice.rows <= 0 || first >= length) return;
  if (p.window > 0 && first + p.block_size <= slice.past - p.window + 1 - kBeforeWindow) return;
  const bool is_value = blockIdx.z == 1;
  const int32_t wide = static_cast<int32_t>(blockIdx.y) * p.pages_each + static_cast<int32_t>(blockIdx.x);
  const int64_t page = p.pages[blockIdx.y * p.page_stride + blockIdx.x];
  const int rows = p.kv_heads * p.block_size, pieces = p.head_dim / 8;
  const int64_t row_bytes = p.fp8 ? p.head_dim : p.head_dim / 32 * 34;
  const std::byte* from = (is_value ? p.values : p.keys) + page * rows * row_bytes;
  uint4* to = (is_value ? p.wide_values : p.wide_keys) + static_cast<int64_t>(wide) * rows * pieces;
  for (int i = static_cast<int>(threadIdx.x); i < rows * pieces; i += kThreads) {
    const int row = i / pieces;
    // Slots behind the sequence's end may hold anything.
    to[i] = first + row % p.block_size < length ? eight_of(p, from, row, i % pieces) : uint4{};
  }
  if (!is_value && threadIdx.x == 0) p.wide_pages[wide] = wide;
}

// The workspace lies after the counters that all shapes share. Sequences that do not fit together take turns.
struct Workspace {
  static constexpr int64_t kUsual = int64_t{256} << 20, kMost = int64_t{1} << 30;
  int pages_each;
  int64_t row_set, sequence_bytes;  // row_set: bytes of one sequence's keys
  int64_t at_once;                  // sequences
  size_t table = kCudaAttentionCounters, keys, values, bytes;

  explicit Workspace(const AttentionProblem& p)
      : pages_each(static_cast<int>((p.context + p.block_size - 1) / p.block_size)),
        row_set(int64_t{pages_each} * p.block_size * p.kv_heads * p.key_dim * 2),
        sequence_bytes(2 * row_set),
        at_once(std::clamp<int64_t>(kUsual / std::max<int64_t>(1, sequence_bytes), 1, p.sequences)),
        keys(table + aligned(static_cast<size_t>(at_once * pages_each) * sizeof(int32_t))),
        values(keys + aligned(static_cast<size_t>(at_once * row_set))),
        bytes(values + aligned(static_cast<size_t>(at_once * row_set))) {}

  static size_t aligned(size_t n) { return (n + 255) / 256 * 256; }
};

AttentionProblem in_f16(AttentionProblem p) {
  p.kv = DType::F16;
  return p;
}

class WidenedPrompt final : public AttentionKernel {
 public:
  explicit WidenedPrompt(KernelList<AttentionOp> prompts) : prompts_(std::move(prompts)) {}
  std::string_view name() const override { return "cuda_widened_prefill"; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || (p.kv != DType::Q8_0 && p.kv != kFp8) || !is_kv_dtype(p.kv, p.key_dim)) return false;
    if (p.key_dim % 8 != 0 || Workspace(p).sequence_bytes > Workspace::kMost) return false;
    return wide_kernel(p, hardware) != nullptr;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double moved = 3.0 * double(Workspace(p).sequence_bytes) / 2 * double(p.sequences);
    return gpu_us(moved, hardware, 0.5) + wide_kernel(p, hardware)->estimate_us(in_f16(p), hardware);
  }
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    return std::max(Workspace(p).bytes, wide_kernel(p, hardware)->workspace_bytes(in_f16(p), hardware));
  }

  void run(const Args& a, const Executor& executor) const override {
    const Problem problem = problem_of(a).bucketed();
    const Workspace space(problem);
    const AttentionKernel& wide = *wide_kernel(problem, *executor.hardware);
    for (size_t first = 0; first < a.sequences.size(); first += static_cast<size_t>(space.at_once)) {
      Args part = a;
      part.sequences = a.sequences.subspan(first, std::min(a.sequences.size() - first, size_t(space.at_once)));
      part.tables.slices += first;
      part.tables.pages += static_cast<int64_t>(first) * a.tables.page_stride;
      widen(part, space, executor);
      part.kv.dtype = DType::F16;
      part.kv.pages = space.at_once * space.pages_each;
      part.kv.keys = executor.workspace + space.keys;
      part.kv.values = executor.workspace + space.values;
      part.tables.pages = reinterpret_cast<int32_t*>(executor.workspace + space.table);
      part.tables.page_stride = space.pages_each;
      wide.run(part, executor);
    }
  }

 private:
  const AttentionKernel* wide_kernel(const Problem& p, const Hardware& hardware) const {
    const auto can_run = [&](const AttentionKernel* kernel) { return kernel->can_run(in_f16(p), hardware); };
    const auto found = std::find_if(prompts_.begin(), prompts_.end(), can_run);
    return found == prompts_.end() ? nullptr : *found;
  }

  static void widen(const Args& a, const Workspace& space, const Executor& executor) {
    const Params params{a.kv.keys,
                        a.kv.values,
                        reinterpret_cast<uint4*>(executor.workspace + space.keys),
                        reinterpret_cast<uint4*>(executor.workspace + space.values),
                        reinterpret_cast<int32_t*>(executor.workspace + space.table),
                        a.tables.slices,
                        a.tables.pages,
                        a.tables.page_stride,
                        a.kv.kv_heads,
                        a.kv.key_dim,
                        a.kv.block_size,
                        a.window,
                        space.pages_each,
                        a.kv.dtype == kFp8};
    // A table may be narrower than the bucket's longest context.
    const auto pages = std::min<int64_t>(space.pages_each, a.tables.page_stride);
    const dim3 grid(static_cast<unsigned>(pages), static_cast<unsigned>(a.sequences.size()), 2);
    check_launch(launch_kernel(widen_pages, grid, kThreads, 0, cuda_launch(executor), params), "widening KV pages");
  }

  KernelList<AttentionOp> prompts_;
};

}  // namespace

const AttentionKernel* cuda_widened_attention(const KernelList<AttentionOp>& prompts) {
  static const WidenedPrompt kernel(prompts);
  return &kernel;
}

}  // namespace millrace
