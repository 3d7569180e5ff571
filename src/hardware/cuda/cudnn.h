// cuDNN's attention for prompts, where the machine has it: loaded at run time, so that the binary needs the driver
// only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "tensor/dtype.h"

namespace millrace {

// New tokens of one sequence, causal, over keys and values in pages ([page][kv head][slot][head_dim]). Where slots of
// the last page that no token has hold NaN, some versions give NaN (9.19) and others do not (9.14).
struct CudnnAttentionProblem {
  DType dtype = DType::BF16;  // of all matrices: BF16 or F16
  int heads = 0, kv_heads = 0, head_dim = 0, block_size = 0;
  int64_t pages = 0;        // that keys and values have
  int64_t table_pages = 0;  // that the sequence's table has room for
  int64_t rows = 0;
  int64_t q_stride = 0, out_stride = 0;  // elements from one row to the next
  float scale = 1;                       // of q k^T

  friend bool operator==(const CudnnAttentionProblem&, const CudnnAttentionProblem&) = default;
};

struct CudnnAttentionArgs {
  const void *q = nullptr, *keys = nullptr, *values = nullptr;
  const int32_t* table = nullptr;  // page of each block_size positions; a page that there is, also beyond the length
  const int32_t *rows = nullptr, *length = nullptr;  // of the sequence: new tokens, and all with them
  void* out = nullptr;
  float* log_sums = nullptr;  // [heads, rows]: logarithm of each row's sum of weights
  void* workspace = nullptr;
};

class CudnnAttention {
 public:
  static constexpr size_t kWorkspaceBytes = 32u << 20;

  CudnnAttention();
  ~CudnnAttention();
  static bool available();  // the library is there, with what it loads itself
  static size_t version();  // of it, 91900 for 9.19.0; 0: there is none
  // Both prepare what they meet for the first time. False: the library has no kernel for it, or failed before.
  bool can_run(const CudnnAttentionProblem& problem);
  bool run(const CudnnAttentionProblem& problem, const CudnnAttentionArgs& args, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
