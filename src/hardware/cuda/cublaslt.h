// cuBLASLt, where the machine has it: loaded at run time, so that the binary needs the driver only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "tensor/dtype.h"

namespace millrace {

// y = x w^T, or y += where `accumulate`; x [m, k], w [n, k], y [m, n], rows `x_stride` and `y_stride` elements apart.
struct CublasLtProblem {
  DType inputs = DType::BF16;  // BF16, F16 or F32
  DType output = DType::BF16;  // the same, or F32
  int64_t n = 0, k = 0, m = 0;
  int64_t x_stride = 0, y_stride = 0;
  bool accumulate = false;
  int y_alignment = 256;  // bytes that y's address is a multiple of; 256 stands for all from 16 on
  int proposal =
      0;  // which of the library's proposals, best first by its own reckoning; the last one where it has fewer

  friend bool operator==(const CublasLtProblem&, const CublasLtProblem&) = default;
};

class CublasLtGemm {
 public:
  static constexpr int kProposals = 8;
  static constexpr size_t kWorkspaceBytes = 32u << 20;  // what NVIDIA advises for Hopper

  CublasLtGemm();
  ~CublasLtGemm();
  static size_t version();                       // of the library, 130002 for 13.0.2; 0: there is none
  bool available() const;                        // the library is there, and knows the GPU
  bool can_run(const CublasLtProblem& problem);  // it has an algorithm for this
  void run(const CublasLtProblem& problem, const void* x, const void* w, void* y, std::span<std::byte> workspace,
           cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
