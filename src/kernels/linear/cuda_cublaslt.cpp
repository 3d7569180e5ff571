// cuBLASLt as one more candidate at every number of rows. Weights that it cannot multiply with as they are (quantized
// ones) are first written out in 16 bits, which pays for long prompts.
#include <algorithm>

#include "hardware/cuda/cublaslt.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda_packed.h"
#include "kernels/linear/cuda_rows.h"

namespace millrace {
namespace {

class CublasLtLinear final : public LinearKernel {
 public:
  std::string_view name() const override { return "cublaslt"; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || p.precision == Precision::Exact) return false;
    if (p.x != DType::BF16 && p.x != DType::F16) return false;
    if (p.layout != cuda_rows_layout().name() && cuda_packed_type(p.layout) != p.x) return false;
    return p.k % 8 == 0 && p.n % 8 == 0 && gemm().available();
  }

  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double elements = double(p.n) * double(p.k);
    const double weights = 2 * elements, operations = 2 * elements * double(p.m);
    const double product = 2 * h.ceilings.region_us + std::max(weights / (0.8 * h.ceilings.read_gbs),
                                                                operations / (0.85 * h.ceilings.bf16_gflops)) * 1e-3;
    return p.format == p.x ? product : product + gpu_us(weights * 1.5, h, 0.5);
  }

  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    const size_t written_out = p.format == p.x ? 0 : static_cast<size_t>(p.n * p.k) * 2;
    return CublasLtGemm::kWorkspaceBytes + written_out;
  }

  void run(const Args& a, const Executor& executor) const override {
    const LinearWeights& w = *a.weights;
    const void* weights = w.data;
    if (w.format != a.x.dtype) {
      std::byte* to = executor.workspace + CublasLtGemm::kWorkspaceBytes;
      if (w.layout == &cuda_rows_layout()) {
        cuda_write_out(w, a.x.dtype, to, executor.queue);
      } else {
        cuda_unpack(w, to, executor.queue);
      }
      weights = to;
    }
    gemm().run({a.x.dtype, a.y.dtype, w.n, w.k, a.x.rows, a.x.stride, a.y.stride, a.accumulate}, a.x.data, weights,
               a.y.data, {executor.workspace, CublasLtGemm::kWorkspaceBytes},
               static_cast<cudaStream_t>(executor.queue));
    if (a.bias != nullptr) cuda_add_bias(a.y, a.bias, executor.queue);
  }

 private:
  // The library's handle, and an algorithm for each problem that it met. One thread steps a model; several models on
  // several threads each keep their own.
  static CublasLtGemm& gemm() {
    thread_local CublasLtGemm gemm;
    return gemm;
  }
};

}  // namespace

const LinearKernel* cuda_cublaslt_linear() {
  static const CublasLtLinear kernel;
  return &kernel;
}

}  // namespace millrace
