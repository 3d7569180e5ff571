#include "kernels/cuda/cost.h"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda_lists.h"

namespace millrace {
namespace {

struct Params {
  GpuMatrix x, out;
  const float *weight, *bias;
  float epsilon;
  int cols;  // of a group
  bool layer;
};

// One block for each group of a row.
__global__ void norm_rows(Params p) {
  const int64_t row = blockIdx.x, first = int64_t(blockIdx.y) * p.cols;
  float mean = 0;
  if (p.layer) {
    for (int i = threadIdx.x; i < p.cols; i += blockDim.x) mean += p.x.get(row, first + i);
    mean = block_reduce<Add>(mean) / float(p.cols);
  }
  float squares = 0;
  for (int i = threadIdx.x; i < p.cols; i += blockDim.x) {
    const float x = p.x.get(row, first + i) - mean;
    squares += x * x;
  }
  const float inverse = rsqrtf(block_reduce<Add>(squares) / float(p.cols) + p.epsilon);
  for (int i = threadIdx.x; i < p.cols; i += blockDim.x) {
    float y = (p.x.get(row, first + i) - mean) * inverse;
    if (p.weight != nullptr) y *= p.weight[i];
    if (p.bias != nullptr) y += p.bias[i];
    p.out.set(row, first + i, y);
  }
}

class CudaNorm final : public Kernel<NormOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(8.0 * double(p.rows * p.cols), hardware, 0.1);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.x.rows == 0) return;
    const int cols = static_cast<int>(a.x.cols / a.groups);
    const Params params{a.x, a.out, a.weight, a.bias, a.epsilon, cols, a.kind == NormKind::Layer};
    const dim3 grid(static_cast<unsigned>(a.x.rows), static_cast<unsigned>(a.groups));
    const int threads = cols <= 256 ? 64 : cols <= 2048 ? 256 : 512;
    norm_rows<<<grid, threads, 0, static_cast<cudaStream_t>(executor.queue)>>>(params);
  }
};

}  // namespace

KernelList<NormOp> cuda_norm_kernels() {
  static const CudaNorm kernel;
  return {cuda_norm(), &kernel};
}

}  // namespace millrace
