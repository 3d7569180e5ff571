#include "kernels/linear/linear.h"
#include "base/error.h"
#include "kernels/cuda/cost.h"
#include "kernels/linear/cuda/file_rows.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {
namespace {

class CudaRowsLayout final : public LinearLayout {
 public:
  std::string_view name() const override { return "cuda_rows"; }
  bool accepts(DType, int64_t, int64_t, const Hardware& hardware) const override { return is_gpu(hardware); }
  size_t bytes(DType format, int64_t n, int64_t k) const override {
    return static_cast<size_t>(n) * row_bytes(format, k);
  }
  bool keeps_rows(DType) const override { return true; }
  void pack(std::span<const WeightView>, std::byte*, ThreadPool&) const override {
    MR_ASSERT(!"this layout is a GPU's");
  }
  void upload(std::span<const WeightView> parts, std::byte* out, Uploader& uploader, ThreadPool& pool) const override {
    for (const WeightView& part : parts) {
      upload_bytes(part.data, out, part.bytes(), uploader, pool);
      out += part.bytes();
    }
  }
};

}  // namespace

const LinearLayout& cuda_rows_layout() {
  static const CudaRowsLayout layout;
  return layout;
}

std::vector<const LinearLayout*> LinearOp::cuda_layouts() {
  std::vector<const LinearLayout*> all = cuda_packed_layouts();
  all.push_back(&cuda_rows_layout());
  return all;
}

KernelList<LinearOp> LinearOp::cuda() {
  KernelList<LinearOp> all = cuda_packed_kernels();
  for (const auto* kernel : cuda_cublaslt_linear()) all.push_back(kernel);
  all.push_back(cuda_f32_rows_linear());
  all.push_back(cuda_rows_linear());
  return all;
}

}  // namespace millrace
