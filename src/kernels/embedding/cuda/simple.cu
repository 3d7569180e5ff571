#include "kernels/cuda/cost.h"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/embedding/embedding.h"

namespace millrace {

const Kernel<EmbeddingOp>* cuda_gather();  // gather.cpp

namespace {

struct Params {
  const std::byte* table;
  int64_t row_bytes;
  const int32_t *ids, *chosen;
  float scale;
  bool accumulate;
  GpuMatrix out;
};

template <DType F>
__global__ void look_up(Params p) {
  const int64_t row = blockIdx.x;
  const int64_t id = p.ids[row] >= 0 ? p.ids[row] : max(0, p.chosen[~p.ids[row]]);  // -1: the sequence ended
  const std::byte* entry = p.table + id * p.row_bytes;
  for (int64_t i = 8 * threadIdx.x; i < p.out.cols; i += 8 * blockDim.x) {
    float values[8];
    Decoder<F>::some(entry, i, p.out.cols, values);
    for (int e = 0; e < 8 && i + e < p.out.cols; ++e) {
      const float before = p.accumulate ? p.out.get(row, i + e) : 0;
      p.out.set(row, i + e, before + values[e] * p.scale);
    }
  }
}

class CudaEmbedding final : public Kernel<EmbeddingOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware, 0.2);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.out.rows == 0) return;
    const Params params{a.table.data, static_cast<int64_t>(row_bytes(a.table.dtype, a.table.cols)),
                        a.ids.data(), a.chosen,
                        a.scale,      a.accumulate,
                        a.out};
    with_format(a.table.dtype, [&]<DType F>() {
      look_up<F><<<static_cast<unsigned>(a.out.rows), 256, 0, static_cast<cudaStream_t>(executor.queue)>>>(params);
    });
  }
};

}  // namespace

KernelList<EmbeddingOp> EmbeddingOp::cuda() {
  static const CudaEmbedding kernel;
  return {cuda_gather(), &kernel};
}

}  // namespace millrace
