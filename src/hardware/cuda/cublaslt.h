// cuBLASLt, loaded at run time if installed: the binary itself depends on the driver only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "tensor/dtype.h"

namespace millrace {

// y = x w^T, or y += x w^T if `accumulate`; x [m, k], w [n, k], y [m, n]; strides in elements.
struct CublasLtProblem {
  DType inputs = DType::BF16;  // BF16, F16 or F32
  DType output = DType::BF16;  // same as inputs, or F32
  int64_t n = 0, k = 0, m = 0;
  int64_t x_stride = 0, y_stride = 0;
  bool accumulate = false;
  int y_alignment = 256;  // alignment of y in bytes; 256 stands for every multiple of 16
  int proposal = 0;       // index into the library's ranked proposals; beyond the last one: the last

  friend bool operator==(const CublasLtProblem&, const CublasLtProblem&) = default;
};

class CublasLtGemm {
 public:
  static constexpr int kProposals = 8;
  static constexpr size_t kWorkspaceBytes = 32u << 20;  // NVIDIA's advice for Hopper

  CublasLtGemm();
  ~CublasLtGemm();
  static size_t version();                       // 130002 for 13.0.2; 0: not installed
  bool available() const;                        // the library is installed and supports the GPU
  bool can_run(const CublasLtProblem& problem);  // the library has an algorithm for it
  void run(const CublasLtProblem& problem, const void* x, const void* w, void* y, std::span<std::byte> workspace,
           cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
