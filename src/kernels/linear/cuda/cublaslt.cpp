// cuBLASLt as a candidate for every number of rows. Quantized weights are first dequantized to 16 bits, which pays off
// for long prompts. F32 weights, those of routers, are not rounded but split into numbers of 16 bits.
#include <fmt/format.h>

#include <algorithm>

#include "hardware/cuda/cublaslt.h"
#include "hardware/per_device.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda/file_rows.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {
namespace {

class CublasLtLinear final : public LinearKernel {
 public:
  CublasLtLinear(const LinearKernel* base, int proposal)
      : base_(base), proposal_(proposal), name_(base == nullptr ? "cublaslt" : fmt::format("cublaslt_{}", proposal)) {}
  std::string_view name() const override { return name_; }
  const LinearKernel* variant_of(const Problem&, const Hardware&) const override { return base_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || p.precision == Precision::Exact) return false;
    if (p.x != DType::BF16 && p.x != DType::F16) return false;
    if (p.layout != cuda_rows_layout().name() && cuda_packed_type(p.layout) != p.x) return false;
    if (p.format == DType::F32) return base_ == nullptr && !p.gated && p.k % 8 == 0 && gemm().available();
    return p.k % 8 == 0 && p.n % 8 == 0 && gemm().available();
  }

  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double elements = double(p.n) * double(p.k);
    if (p.format == DType::F32) {
      const double product = 2 * elements * double(p.m) / (0.6 * h.ceilings.bf16_gflops) * 1e-3;
      const double read = gpu_us(2.0 * double(p.m * p.k) + 8.0 * double(p.m * p.n), h);
      return gpu_us(10 * elements, h) + kPartsOfF32 * (3.5 + std::max(product, read));
    }
    const double weights = 2 * elements, operations = 2 * elements * double(p.m);
    const double streamed = weights * (1 + 0.0008 * double(p.m)) / (0.97 * h.ceilings.read_gbs);
    const double multiplied = operations / (0.95 * h.ceilings.bf16_gflops);
    const double split = p.n < 3072 ? double(p.k) / 6000 : 0;  // few rows: cuBLASLt splits K and adds the parts
    const double product = (3.5 + split + std::max(streamed, multiplied) * 1e-3) * burden(p);
    const double gating = p.gated ? gpu_us(3.0 * double(p.m * p.n), h) : 0;
    const double stored = double(row_bytes(p.format, p.k)) * double(p.n);
    return product + gating + (p.format == p.x ? 0 : gpu_us(weights + stored, h, 0.85));
  }

  // In a decode step our kernels overlap, but cuBLASLt's neither start early nor let the next kernel start early. With
  // two of them per layer, each as fast as ours in isolation, a step of 64 tokens took 2.4 % longer (8B, H200).
  double burden(const Problem& p) const override { return p.m <= kMostDecoding ? 1.03 : 1; }

  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    if (p.format == DType::F32)
      return CublasLtGemm::kWorkspaceBytes + kPartsOfF32 * part_bytes(split_rows(p.n, p.k), p.k);
    const size_t gate_up = p.gated ? static_cast<size_t>(p.m * p.n) * 2 : 0;
    return CublasLtGemm::kWorkspaceBytes + written_out(p.format, p.x, p.n, p.k) + gate_up;
  }

  void run(const Args& a, const Executor& executor) const override {
    const LinearWeights& w = *a.weights;
    if (w.format == DType::F32) return run_f32(a, executor);
    const void* weights = w.data;
    std::byte* scratch = executor.workspace + CublasLtGemm::kWorkspaceBytes;
    if (w.format != a.x.dtype) {
      if (w.layout == &cuda_rows_layout()) {
        cuda_write_out(w, a.x.dtype, scratch, executor.queue);
      } else {
        cuda_unpack(w, scratch, executor.queue);
      }
      weights = scratch;
      scratch += written_out(w.format, a.x.dtype, w.n, w.k);
    }
    const auto stream = static_cast<cudaStream_t>(executor.queue);
    const std::span workspace(executor.workspace, CublasLtGemm::kWorkspaceBytes);
    if (a.gated) {
      gemm().run({a.x.dtype, a.x.dtype, w.n, w.k, a.x.rows, a.x.stride, w.n, false, 256, proposal_for(a)}, a.x.data,
                 weights, scratch, workspace, stream);
      return cuda_gate(scratch, a.y, executor.queue);
    }
    gemm().run({a.x.dtype, a.y.dtype, w.n, w.k, a.x.rows, a.x.stride, a.y.stride, a.accumulate, alignment_of(a.y),
                proposal_for(a)},
               a.x.data, weights, a.y.data, workspace, stream);
    if (a.bias != nullptr) {
      cuda_add_bias(a.y, a.bias, executor.queue);
    } else if (a.y.dtype == DType::F16) {
      cuda_limit(a.y, executor.queue);
    }
  }

 private:
  static constexpr int64_t kMostDecoding = 64;

  // The rows beyond a multiple of eight go row by row: with them, cuBLASLt's products are five times slower.
  static void run_f32(const Args& a, const Executor& executor) {
    const LinearWeights& w = *a.weights;
    const int64_t even = w.n / 8 * 8;
    if (a.y.dtype != DType::F32 || even == 0) return cuda_f32_rows_linear()->run(a, executor);
    for (int64_t first = 0; first < even; first += split_rows(even, w.k)) {
      multiply_f32(a, first, std::min(even - first, split_rows(even, w.k)), executor);
    }
    if (a.bias != nullptr) cuda_add_bias(a.y.columns(0, even), a.bias, executor.queue);
    if (even == w.n) return;
    LinearWeights rest = w;
    rest.n = w.n - even;
    rest.data = w.data + even * w.k * int64_t{sizeof(float)};
    Args of_rest = a;
    of_rest.weights = &rest;
    of_rest.y = a.y.columns(even, rest.n);
    if (a.bias != nullptr) of_rest.bias = a.bias + even;
    cuda_f32_rows_linear()->run(of_rest, executor);
  }
  // The smallest part first, so that its bits are not lost.
  static void multiply_f32(const Args& a, int64_t first, int64_t n, const Executor& executor) {
    const LinearWeights& w = *a.weights;
    std::byte* parts = executor.workspace + CublasLtGemm::kWorkspaceBytes;
    const Matrix y = a.y.columns(first, n);
    cuda_split(reinterpret_cast<const float*>(w.data) + first * w.k, n * w.k, a.x.dtype, parts, executor.queue);
    for (int part = kPartsOfF32 - 1; part >= 0; --part) {
      const bool accumulate = a.accumulate || part < kPartsOfF32 - 1;
      gemm().run({a.x.dtype, DType::F32, n, w.k, a.x.rows, a.x.stride, y.stride, accumulate, alignment_of(y)}, a.x.data,
                 parts + static_cast<size_t>(part) * part_bytes(n, w.k), y.data,
                 {executor.workspace, CublasLtGemm::kWorkspaceBytes}, static_cast<cudaStream_t>(executor.queue));
    }
  }
  // Rows of the weights that are split at a time, so that an output head of F32 needs no workspace of its size.
  static int64_t split_rows(int64_t n, int64_t k) {
    constexpr int64_t kElements = int64_t{1} << 24;
    return std::min(n, std::max<int64_t>(8, kElements / k / 8 * 8));
  }
  static size_t part_bytes(int64_t n, int64_t k) { return static_cast<size_t>(n * k) * 2; }

  // Proposals are measured at the bucket's row count with a plain output; for other sizes and outputs cuBLASLt's list
  // has another order.
  int proposal_for(const Args& a) const {
    const bool as_measured = a.x.rows == bucket_rows(a.x.rows) && a.y.dtype == a.x.dtype && !a.accumulate;
    return as_measured ? proposal_ : 0;
  }
  // The columns of q, k or v within a shared matrix can start at any alignment.
  static int alignment_of(const Matrix& y) {
    const auto address = reinterpret_cast<uintptr_t>(y.data) | static_cast<uintptr_t>(y.stride * info(y.dtype).bytes);
    return address % 16 == 0 ? 256 : static_cast<int>(address & (~address + 1));
  }
  static size_t written_out(DType format, DType x, int64_t n, int64_t k) {
    return format == x ? 0 : static_cast<size_t>(n * k) * 2;
  }
  // The library's handle, and an algorithm per problem.
  static CublasLtGemm& gemm() { return per_cuda_device<CublasLtGemm>(); }

  const LinearKernel* base_;
  int proposal_;
  std::string name_;
};

}  // namespace

std::vector<const LinearKernel*> cuda_cublaslt_linear() {
  static const CublasLtLinear base(nullptr, 0);
  static const std::vector<CublasLtLinear> variants = [] {
    std::vector<CublasLtLinear> all;
    for (int i = 1; i < CublasLtGemm::kProposals; ++i) all.emplace_back(&base, i);
    return all;
  }();
  std::vector<const LinearKernel*> all{&base};
  for (const auto& variant : variants) all.push_back(&variant);
  return all;
}

}  // namespace millrace
