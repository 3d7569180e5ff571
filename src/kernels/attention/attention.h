// Attention of a ragged batch over paged keys and values.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "kernels/kernel.h"
#include "kernels/rope/style.h"
#include "tensor/kv_dtype.h"
#include "tensor/matrix.h"

namespace millrace {

// The cached rows of one layer, in pages: keys are [page][kv head][slot][key_dim], values [page][kv head][slot]
// [value_dim], each row in `dtype`. A latent layer (MLA) stores key rows only: a value is the first value_dim elements
// of its key row, and `values` equals `keys`.
struct KvLayer {
  DType dtype = DType::F32;
  int kv_heads = 0, key_dim = 0, value_dim = 0, block_size = 0;
  int64_t pages = 0;  // in total; 0: unknown
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  bool latent = false;

  size_t key_row_bytes() const { return row_bytes(dtype, key_dim); }
  // Distance between value rows.
  size_t value_row_bytes() const { return row_bytes(dtype, latent ? key_dim : value_dim); }
  size_t key_offset(int64_t page, int head, int slot) const { return row(page, head, slot) * key_row_bytes(); }
  size_t value_offset(int64_t page, int head, int slot) const { return row(page, head, slot) * value_row_bytes(); }
  // Whether keys and values are separate rows of one width. Most kernels support nothing else.
  bool one_head_size() const { return key_dim == value_dim && !latent; }

 private:
  size_t row(int64_t page, int head, int slot) const {
    return static_cast<size_t>((page * kv_heads + head) * block_size + slot);
  }
};

// Whether rows of `dim` elements can be cached in this format.
inline bool is_kv_dtype(DType dtype, int dim) {
  return !is_quantized(dtype) || dtype == kFp8 || (dtype == DType::Q8_0 && dim % info(dtype).block == 0);
}
inline bool is_kv_dtype(DType dtype, int key_dim, int value_dim) {
  return is_kv_dtype(dtype, key_dim) && is_kv_dtype(dtype, value_dim);
}

// The part of one sequence that this step computes: `rows` new tokens that follow `past` cached ones.
struct SequenceSlice {
  int32_t first_row = 0;  // in the batch
  int32_t rows = 0;       // 1 in decode, more with drafts, a chunk in prefill
  int32_t past = 0;       // tokens before them; row i has position past + i
  int32_t horizon = 0;    // length the sequence is known to reach (the whole prompt): some rope scalings depend on it
  std::span<const int32_t> pages;  // block table: position p lives in pages[p / block_size]
  int32_t slot = -1;               // index of its recurrent state in the state cache; -1: none
  bool drafts = false;             // the rows behind the first are drafts: a decode of several rows, not a prompt
  int32_t second = 0;              // position where the second text of a pair begins (token type 1); 0: one text
};

// The slices as flat arrays in device memory. A recorded step is replayed with other contents, so GPU kernels read
// lengths here and launch for the maximum of the problem's bucket.
struct SliceTables {
  struct alignas(16) Slice {
    int32_t first_row, rows, past, length;  // length: past + rows
  };
  const Slice* slices = nullptr;   // [sequences]
  const int32_t* pages = nullptr;  // [sequences][page_stride]
  int64_t page_stride = 0;
  const int32_t* positions = nullptr;  // [rows]
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot for the row's key and value
  int32_t longest_slice = 0;           // rows
  const int32_t* slots = nullptr;      // [sequences]: SequenceSlice::slot
};

struct AttentionProblem {
  DType kv = DType::F32;
  Precision precision = Precision::Fast;
  int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0, block_size = 0;
  int window = 0;  // 0: all of the past
  bool softcap = false;
  int64_t sequences = 0;    // in the batch
  int64_t rows = 0;         // new tokens in all
  int64_t context = 0;      // longest past + rows
  bool invariant = false;   // a row's result may not depend on the rest of the batch
  bool calibrated = false;  // the unified maximum of each head is known
  bool latent = false;      // values are prefixes of key rows
  bool sinks = false;       // heads have an attention sink
  bool bidirectional = false;

  bool one_head_size() const { return key_dim == value_dim && !latent; }
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
  AttentionProblem bucketed() const;
};
std::string to_string(const AttentionProblem& problem);          // key of its plan; unique per problem
std::string row_sizes(int key_dim, int value_dim, bool latent);  // part of that key

// RMS norms of the heads of q and k, before RoPE.
struct HeadNorms {
  const float *q = nullptr, *k = nullptr;  // [key_dim]; null: none
  float epsilon = 0;
};

// This step's keys and values if they are not stored yet. For kernels that apply RoPE to q and k and store k and v.
struct FreshRows {
  Matrix k,
      v;  // [rows, kv_heads * key_dim], [rows, kv_heads * value_dim]; no columns: already stored, and q is rotated
  Matrix angles;  // [rows, key_dim]; no columns: no RoPE
  RopeStyle style = RopeStyle::Halves;
  HeadNorms norms;  // only for heads of a power of two
};

// Distance above and below phi that a row's largest score may have before unified kernels compute the row again.
struct UnifiedRoom {
  float above, below;
};
UnifiedRoom unified_room(DType kv);

struct AttentionArgs {
  Matrix q;    // [rows, heads * key_dim]
  Matrix out;  // [rows, heads * value_dim]
  KvLayer kv;  // holds the new rows already, unless `fresh` does
  std::span<const SequenceSlice> sequences;
  int heads = 0;
  float scale = 1;    // of q k^T
  float softcap = 0;  // c: scores become c tanh(score / c); 0: none
  int window = 0;     // a row at position p attends to p - window + 1 .. p; 0: to all positions up to p
  // Rows also attend to the later rows of their slice, with a window up to p + window - 1. A slice is a whole sequence.
  bool bidirectional = false;
  const float* phi = nullptr;  // [heads]: calibrated unified maximum of each head's scores, or null
  // [heads]: learned logits, in units of scores, or null. A head's sink adds e^sink to the denominator of its softmax
  // and has no value. Kernels add it once per row, when they divide by the denominator.
  const float* sinks = nullptr;
  SliceTables tables;      // GPU only
  bool invariant = false;  // a row's result may not depend on the rest of the batch
  FreshRows fresh;
  const int32_t* only_if = nullptr;  // GPU, prefill kernels: do nothing if *only_if is zero
};

// The positions [begin, end) that a row of a slice attends to.
struct SeenPositions {
  int begin, end;
};
inline SeenPositions seen_by(const AttentionArgs& args, const SequenceSlice& slice, int row) {
  const int position = slice.past + row, length = slice.past + slice.rows;
  const int begin = args.window > 0 ? std::max(0, position - args.window + 1) : 0;
  if (!args.bidirectional) return {begin, position + 1};
  return {begin, args.window > 0 ? std::min(length, position + args.window) : length};
}

// The problem that these arguments pose, with Precision::Fast.
AttentionProblem problem_of(const AttentionArgs& args);

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  using Problem = AttentionProblem;
  using Args = AttentionArgs;

  static KernelList<AttentionOp> cpu();  // best first where estimates tie
  static KernelList<AttentionOp> cuda();
  static const Kernel<AttentionOp>* reference();  // scalar; every kernel is tested against it
};
using AttentionKernel = Kernel<AttentionOp>;

}  // namespace millrace
