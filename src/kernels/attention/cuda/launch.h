// Attention of a ragged batch over paged keys and values on a CUDA device: raw pointers and a stream, no model types.
//
// A plan is made once per shape, since it queries the driver for occupancy. A launch neither allocates nor
// synchronizes. Kernels read the true lengths on the device, so a captured launch stays valid while sequences grow: a
// graph depends on the plan and on `sequences`, never on a context length.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/scores.h"
#include "kernels/cuda/launch.h"

namespace millrace {

// One sequence of the step: `rows` new tokens after `past` cached ones. rows = 0: unused entry.
struct alignas(16) DeviceSlice {
  int32_t first_row = 0, rows = 0, past = 0, unused = 0;
};

enum class CudaAttentionKind : uint8_t {
  Decode,         // few rows per sequence: reads KV once, split evenly by the true lengths (not F32)
  DecodeCluster,  // the same, split without reading the lengths: fastest if they are equal; compute capability 9.0
  Prefill,        // many rows per sequence: tensor-core tiles of queries (F16, BF16 KV)
  PrefillHopper,  // the same by warpgroup products and bulk copies: capability 9.0, head sizes 64, 128, 256
  General,        // any KV format and head size, f32 arithmetic: slow
};

// How the work of a decode is split; a pair is a sequence and a KV head. Line: evenly, by the true lengths. Cluster:
// one cluster of blocks per pair; WideCluster has blocks with more warps. Even: all pairs evenly, as if they were
// equally long.
enum class DecodeForm : uint8_t { Line, Cluster, WideCluster, Even };

struct CudaAttentionShape {
  CudaAttentionKind kind = CudaAttentionKind::Decode;
  Softmax softmax = Softmax::Lazy;  // decode only
  DType kv = DType::BF16;           // F32, F16, BF16, Q8_0 or FP8
  int heads = 0, kv_heads = 0, head_dim = 0;
  int block_size = 64;     // tokens per page: a multiple of 16; any for General
  int sequences = 0;       // entries of the batch, used or not
  int max_rows = 1;        // maximum rows of a slice; Decode needs a small max_rows * heads / kv_heads
  int total_rows = 0;      // maximum rows of all slices, for Prefill and General; 0: sequences * max_rows
  bool invariant = false;  // DecodeCluster: the order of a row's sums does not depend on the batch
  // DecodeCluster: maximum past + rows of a slice, which may reduce shared memory; 0: unknown.
  int max_context = 0;

  friend bool operator==(const CudaAttentionShape&, const CudaAttentionShape&) = default;
};

// Launch parameters of a shape on this device. `grid` = 0: the kernel cannot run here or not for this shape.
struct CudaAttentionPlan {
  CudaAttentionShape shape;
  int grid = 0, threads = 0, shared_bytes = 0, cluster = 1, stages = 0;
  DecodeForm form = DecodeForm::Line;  // decode only
  size_t workspace_bytes = 0;          // zero it once before the first launch; each launch leaves it ready for the next

  bool can_run() const { return grid > 0; }
};

// Keys and values of new tokens that are not in their pages yet. The decode kernel then applies RoPE to queries and
// keys and stores keys and values itself. Requires one new token per sequence, RoPE on the whole head, and at most 16
// query heads per KV head.
struct CudaFreshRows {
  const void* keys = nullptr;  // rows of `stride` elements in the type of the queries; null: already stored
  const void* values = nullptr;
  int64_t stride = 0;
  const float* angles = nullptr;       // [rows, head_dim]: cosines, then sines; null: no rotation
  bool halves = true;                  // RopeStyle::Halves, else Interleaved
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot of each row's token; negative: not stored
  // [head_dim]: RMS norms of the heads of q and k, before the rotation; null: none. Only for powers of two.
  const float *q_norm = nullptr, *k_norm = nullptr;
  float epsilon = 0;
};

struct CudaAttentionArgs {
  CudaMatrix q, out;     // [rows, heads * head_dim]
  void* keys = nullptr;  // [page][kv head][slot][head_dim] of one layer
  void* values = nullptr;
  CudaFreshRows fresh;
  const DeviceSlice* slices = nullptr;  // [sequences]
  const int32_t* tables = nullptr;      // [sequences][table_pitch]: position p is in page tables[p / block_size]
  int64_t table_pitch = 0;
  float scale = 1;               // of q k^T
  float softcap = 0;             // c: scores become c tanh(score / c); 0: none
  int window = 0;                // row at position p sees positions p - window + 1 .. p; 0: all up to p
  const float* phi = nullptr;    // [heads]: unified maximum of each head's scores, for Softmax::Unified
  const float* sinks = nullptr;  // [heads]: logits that join the denominator only, or null
  void* workspace = nullptr;
  const int32_t* only_if = nullptr;  // prefill kernels: do nothing if *only_if is zero
  // Whether slices, tables and the KV of earlier steps are complete when the previous kernel lets this one start. A
  // programmatic launch then loads them before it waits.
  bool early = false;
};

// Size of the counters at the front of every workspace. All shapes reserve the same size, because shapes share a
// workspace: the partial results of one shape must not overwrite the counters of another.
inline constexpr size_t kCudaAttentionCounters = 1 << 20;

// Plans for the current device. Must not be called during stream capture.
CudaAttentionPlan plan_cuda_attention(const CudaAttentionShape& shape);
// The even split of DecodeCluster, whether it is faster or not, for tests and benchmarks.
CudaAttentionPlan plan_even_attention(const CudaAttentionShape& shape);
bool takes_fresh_rows(const CudaAttentionShape& shape);
CudaError launch_cuda_attention(const CudaAttentionPlan& plan, const CudaAttentionArgs& args, const CudaLaunch& launch);

}  // namespace millrace
