// cuDNN's attention for prompts, loaded at run time if installed: the binary itself depends on the driver only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "tensor/dtype.h"

namespace millrace {

// Causal attention of one sequence's new tokens over paged keys and values ([page][kv head][slot][head_dim]). If unused
// slots of the last page hold NaN, version 9.19 returns NaN and 9.14 does not.
struct CudnnAttentionProblem {
  DType dtype = DType::BF16;  // of q, keys, values and out: BF16 or F16
  int heads = 0, kv_heads = 0, head_dim = 0, block_size = 0;
  int64_t pages = 0;        // pages in the KV cache
  int64_t table_pages = 0;  // capacity of the sequence's block table
  int64_t rows = 0;
  int64_t q_stride = 0, out_stride = 0;  // in elements
  float scale = 1;                       // applied to q k^T

  friend bool operator==(const CudnnAttentionProblem&, const CudnnAttentionProblem&) = default;
};

struct CudnnAttentionArgs {
  const void *q = nullptr, *keys = nullptr, *values = nullptr;
  const int32_t* table = nullptr;  // page of each block_size positions; valid pages beyond the length, too
  const int32_t *rows = nullptr, *length = nullptr;  // the sequence's new tokens, and its total length
  void* out = nullptr;
  float* log_sums = nullptr;  // [heads, rows]: log of each row's softmax denominator
  void* workspace = nullptr;
};

class CudnnAttention {
 public:
  static constexpr size_t kWorkspaceBytes = 32u << 20;

  CudnnAttention();
  ~CudnnAttention();
  static bool available();  // the library and its sublibraries are installed
  static size_t version();  // 91900 for 9.19.0; 0: not installed
  // Both prepare a plan at the first call with a problem. False: the library has no kernel for it, or has failed
  // before.
  bool can_run(const CudnnAttentionProblem& problem);
  bool run(const CudnnAttentionProblem& problem, const CudnnAttentionArgs& args, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
