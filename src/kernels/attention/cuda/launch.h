// Attention of a ragged batch over paged keys and values on a CUDA device: raw pointers and a stream, no model types.
//
// A plan is made once for a shape (it asks the driver for occupancy); a launch neither allocates nor synchronises. The
// true lengths are read on the device, so that a captured launch stays valid while sequences grow: a graph depends on
// the plan and on `sequences`, never on a context length.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/scores.h"
#include "kernels/cuda/launch.h"

namespace millrace {

// One sequence of the step: `rows` new tokens that follow `past` cached ones. rows = 0: a place that is not used.
struct alignas(16) DeviceSlice {
  int32_t first_row = 0, rows = 0, past = 0, unused = 0;
};

enum class CudaAttentionKind : uint8_t {
  Decode,  // few rows per sequence: KV is read once, split evenly over the device whatever the lengths are (F16, BF16
           // KV)
  DecodeCluster,  // the same, split without a look at the lengths: fastest for equal ones; compute capability 9.0
  Prefill,        // many rows per sequence: tensor-core tiles of queries (F16 and BF16 KV)
  PrefillHopper,  // the same with warpgroup products and bulk copies: compute capability 9.0, head sizes 64 and 128
  General,        // any KV format and head size, f32 arithmetic: slow
};

// How a decode's work is cut. Line: all of it evenly, by the true lengths. Cluster: a cluster of blocks for each pair
// of sequence and KV head; wide ones have more warps. Even: all pairs evenly, as if they were equally long.
enum class DecodeForm : uint8_t { Line, Cluster, WideCluster, Even };

struct CudaAttentionShape {
  CudaAttentionKind kind = CudaAttentionKind::Decode;
  Softmax softmax = Softmax::Lazy;  // decodes only
  DType kv = DType::BF16;           // F32, F16, BF16 or Q8_0
  int heads = 0, kv_heads = 0, head_dim = 0;
  int block_size = 64;     // tokens of a page; a multiple of 16, any for General
  int sequences = 0;       // places in the batch, used or not
  int max_rows = 1;        // no slice has more rows; Decode wants max_rows * heads / kv_heads small
  int total_rows = 0;      // in all slices at most; Prefill and General (0: sequences * max_rows)
  bool invariant = false;  // DecodeCluster: a row's sums are in the same order whatever else is in the batch
  // DecodeCluster: past and new tokens of any slice at most, for which less memory may do; 0: not known.
  int max_context = 0;

  friend bool operator==(const CudaAttentionShape&, const CudaAttentionShape&) = default;
};

// What a shape needs, as this device offers it. `grid` 0: the kernel cannot run here or not for this shape.
struct CudaAttentionPlan {
  CudaAttentionShape shape;
  int grid = 0, threads = 0, shared_bytes = 0, cluster = 1, stages = 0;
  DecodeForm form = DecodeForm::Line;  // of decodes
  size_t workspace_bytes = 0;          // zero it once before the first launch: each launch leaves it ready for the next

  bool can_run() const { return grid > 0; }
};

// Keys and values of the new tokens that are not in their pages yet: a decode kernel then turns queries and keys and
// stores keys and values itself. One new token for each sequence, all of a head turns, at most 16 heads share a KV
// head.
struct CudaFreshRows {
  const void* keys = nullptr;  // rows of `stride` elements of the queries' type; null: all is stored already
  const void* values = nullptr;
  int64_t stride = 0;
  const float* angles = nullptr;       // [rows, head_dim]: cosines, then sines; null: nothing turns
  bool halves = true;                  // pairs lie half a head apart, not side by side
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot of each row's token; negative: not stored
};

struct CudaAttentionArgs {
  CudaMatrix q, out;     // [rows, heads * head_dim]
  void* keys = nullptr;  // [page][kv head][slot][head_dim]: one layer
  void* values = nullptr;
  CudaFreshRows fresh;
  const DeviceSlice* slices = nullptr;  // [sequences]
  const int32_t* tables = nullptr;      // [sequences][table_pitch]: position p lives in page tables[p / block_size]
  int64_t table_pitch = 0;
  float scale = 1;             // of q k^T
  float softcap = 0;           // c: scores become c tanh(score / c); 0: none
  int window = 0;              // row at position p sees positions p - window + 1 .. p; 0: all up to p
  const float* phi = nullptr;  // [heads]: the unified maximum of each head's scores; Softmax::Unified wants it
  void* workspace = nullptr;
  const int32_t* only_if = nullptr;  // prefill kernels: nothing is to be done where this is zero
  // Whether slices, tables and the KV of earlier steps are complete when the kernel before this one lets it start: a
  // programmatic launch then fetches them before it waits.
  bool early = false;
};

// What lies at the front of every workspace. It has the same room for every shape: shapes share the workspace, and what
// one leaves of its partial results may not be another's counters.
inline constexpr size_t kCudaAttentionCounters = 1 << 20;

// For the device that is current. Not inside a stream capture.
CudaAttentionPlan plan_cuda_attention(const CudaAttentionShape& shape);
// The even cut of a DecodeCluster whether it pays or not, for those who check it or time it.
CudaAttentionPlan plan_even_attention(const CudaAttentionShape& shape);
bool takes_fresh_rows(const CudaAttentionShape& shape);
CudaError launch_cuda_attention(const CudaAttentionPlan& plan, const CudaAttentionArgs& args, const CudaLaunch& launch);

}  // namespace millrace
