// cuBLASLt as the baseline: the algorithms of its heuristic list for one problem.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace millrace {

// y [m, n] = x [m, k] W^T with W [n, k], all bf16 or all f16, row-major.
class CublasLt {
 public:
  CublasLt();
  ~CublasLt();
  int prepare(int64_t n, int64_t k, int64_t m, bool half = false);  // returns the number of algorithms
  bool run(int algorithm, const void* w, const void* x, void* y, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
