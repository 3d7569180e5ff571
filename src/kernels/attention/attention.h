// Attention of a ragged batch over paged keys and values.
#pragma once

#include <span>
#include <string>

#include "kernels/kernel.h"
#include "kernels/rope/style.h"
#include "tensor/matrix.h"

namespace millrace {

// The keys and values of one layer, in pages: [page][kv head][slot][head_dim], each row in `dtype`.
struct KvLayer {
  DType dtype = DType::F32;
  int kv_heads = 0, head_dim = 0, block_size = 0;
  int64_t pages = 0;  // that there are; 0: not said
  std::byte* keys = nullptr;
  std::byte* values = nullptr;

  size_t row_bytes() const { return millrace::row_bytes(dtype, head_dim); }
  size_t offset(int64_t page, int head, int slot) const {
    return static_cast<size_t>((page * kv_heads + head) * block_size + slot) * row_bytes();
  }
};

// Number formats that keys and values can be kept in.
inline bool is_kv_dtype(DType dtype, int head_dim) {
  return !is_quantized(dtype) || (dtype == DType::Q8_0 && head_dim % info(dtype).block == 0);
}

// The part of one sequence that this step computes: `rows` new tokens that follow `past` cached ones.
struct SequenceSlice {
  int32_t first_row = 0;  // in the batch
  int32_t rows = 0;       // 1 in decode, more with drafts, a chunk in prefill
  int32_t past = 0;       // tokens before them; row i has position past + i
  int32_t horizon = 0;    // length the sequence is known to reach (the whole prompt): some rope scalings depend on it
  std::span<const int32_t> pages;  // block table: position p lives in pages[p / block_size]
  bool drafts = false;             // the rows behind the first are drafts: a decode of several rows, no prompt
};

// The slices once more as flat arrays in the device's memory. Recorded steps are replayed with other contents, so
// kernels of a GPU read lengths here and launch for what the problem's bucket allows.
struct SliceTables {
  struct alignas(16) Slice {
    int32_t first_row, rows, past, length;  // length: past + rows
  };
  const Slice* slices = nullptr;   // [sequences]
  const int32_t* pages = nullptr;  // [sequences][page_stride]
  int64_t page_stride = 0;
  const int32_t* positions = nullptr;  // [rows]
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot that a row's key and value go to
  int32_t longest_slice = 0;           // rows
};

struct AttentionProblem {
  DType kv = DType::F32;
  Precision precision = Precision::Fast;
  int heads = 0, kv_heads = 0, head_dim = 0, block_size = 0;
  int window = 0;  // 0: all of the past
  bool softcap = false;
  int64_t sequences = 0;    // in the batch
  int64_t rows = 0;         // new tokens in all
  int64_t context = 0;      // longest past + rows
  bool invariant = false;   // a row's result may not depend on what else is in the batch
  bool calibrated = false;  // the unified maximum of each head is known

  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
  AttentionProblem bucketed() const;
};
std::string to_string(const AttentionProblem& problem);

// The keys and values of this step where they are not stored yet, for kernels that take that along: they turn q and k
// by `angles` and store k and v.
struct FreshRows {
  Matrix k, v;    // [rows, kv_heads * head_dim]; no columns: all is stored, and q is turned
  Matrix angles;  // [rows, head_dim]; no columns: nothing turns
  RopeStyle style = RopeStyle::Halves;
};

// How far above and below phi the largest score of a row may be before unified kernels compute it again.
struct UnifiedRoom {
  float above, below;
};
UnifiedRoom unified_room(DType kv);

struct AttentionArgs {
  Matrix q;    // [rows, heads * head_dim]
  Matrix out;  // [rows, heads * head_dim]
  KvLayer kv;  // holds the new rows already, unless `fresh` does
  std::span<const SequenceSlice> sequences;
  int heads = 0;
  float scale = 1;             // of q k^T
  float softcap = 0;           // c: scores become c tanh(score / c); 0: none
  int window = 0;              // row at position p sees positions p - window + 1 .. p; 0: all up to p
  const float* phi = nullptr;  // [heads]: the unified maximum of each head's scores, where they were calibrated
  SliceTables tables;          // on a GPU
  bool invariant = false;      // a row's result may not depend on what else is in the batch
  FreshRows fresh;
  const int32_t* only_if = nullptr;  // on a GPU, kernels of prompts: nothing is to be done where this is zero
};

// What is asked of a batch, apart from what its arguments do not say: the precision.
AttentionProblem problem_of(const AttentionArgs& args);

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  using Problem = AttentionProblem;
  using Args = AttentionArgs;
};
using AttentionKernel = Kernel<AttentionOp>;

}  // namespace millrace
