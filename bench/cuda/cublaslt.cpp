#include "cublaslt.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <vector>

namespace millrace {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

}  // namespace

struct CublasLt::State {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  void* workspace = nullptr;

  State() {
    cublasLtCreate(&handle);
    cudaMalloc(&workspace, kWorkspaceBytes);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    reset();
    cudaFree(workspace);
    cublasLtDestroy(handle);
  }
  void reset() {
    if (op == nullptr) return;
    cublasLtMatmulDescDestroy(op);
    cublasLtMatrixLayoutDestroy(w);
    cublasLtMatrixLayoutDestroy(x);
    cublasLtMatrixLayoutDestroy(y);
    op = nullptr;
  }
};

CublasLt::CublasLt() : state_(std::make_unique<State>()) {}
CublasLt::~CublasLt() = default;

int CublasLt::prepare(int64_t n, int64_t k, int64_t m, bool half) {
  State& s = *state_;
  s.reset();
  cublasLtMatmulDescCreate(&s.op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(s.op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  const cudaDataType type = half ? CUDA_R_16F : CUDA_R_16BF;
  cublasLtMatrixLayoutCreate(&s.w, type, uint64_t(k), uint64_t(n), k);
  cublasLtMatrixLayoutCreate(&s.x, type, uint64_t(k), uint64_t(m), k);
  cublasLtMatrixLayoutCreate(&s.y, type, uint64_t(n), uint64_t(m), n);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                       sizeof kWorkspaceBytes);
  s.found.resize(16);
  int count = 0;
  cublasLtMatmulAlgoGetHeuristic(s.handle, s.op, s.w, s.x, s.y, s.y, preference, 16, s.found.data(), &count);
  s.found.resize(size_t(count));
  cublasLtMatmulPreferenceDestroy(preference);
  return count;
}

bool CublasLt::run(int algorithm, const void* w, const void* x, void* y, cudaStream_t stream) {
  State& s = *state_;
  const float one = 1, zero = 0;
  return cublasLtMatmul(s.handle, s.op, &one, w, s.w, x, s.x, &zero, y, s.y, y, s.y, &s.found[size_t(algorithm)].algo,
                        s.workspace, kWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace millrace
