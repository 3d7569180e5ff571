// Any format and any activations, in f32 arithmetic: one warp per output reads the file's rows in GPU memory. Runs
// --exact and the shapes that the other kernels refuse.
#include "hardware/cuda/check.h"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

constexpr int kWarps = 8;

struct FileRows {
  int64_t bytes;  // of a row of weights
  GpuMatrix x;
};

// Row `row` of a group's matrix times a row of x; every lane gets the result.
template <DType F>
__device__ float multiply_row(const GroupedParams& p, const FileRows& rows, int group, int row, int x_row) {
  const std::byte* from = p.matrix(group) + row * rows.bytes;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32 * 8; i < p.k; i += 256) {
    float w[8];
    Decoder<F>::some(from, i, p.k, w);
    for (int e = 0; e < min(8, p.k - i); ++e) sum += w[e] * rows.x.get(x_row, i + e);
  }
  return warp_sum(sum);
}

// Block (i, j): outputs from j * kWarps on, of row i of y if the pairs of a row are added up, else of pair i.
template <DType F>
__global__ void __launch_bounds__(32 * kWarps)
    multiply(const __grid_constant__ GroupedParams p, const __grid_constant__ FileRows rows) {
  const int item = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const int output = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (output >= p.outputs) return;
  if (!p.sum) {
    const int group = p.group_of(item);
    if (group < 0) return;
    const float gate = multiply_row<F>(p, rows, group, output, p.x_row(item));
    const float up = p.half > 0 ? multiply_row<F>(p, rows, group, p.half + output, p.x_row(item)) : 0;
    if (lane == 0) store_pair(p, item, group, output, gate, up);
    return;
  }
  float total = 0;
  for (int pair = item * p.per_row; pair < (item + 1) * p.per_row; ++pair) {
    const int group = p.group_of(pair);
    if (group < 0) continue;
    float product = multiply_row<F>(p, rows, group, output, pair);
    if (p.bias != nullptr) product += p.bias[static_cast<int64_t>(group) * p.n + output];
    total = fmaf(p.pair_weights[pair], product, total);
  }
  if (lane == 0) p.y.set(item, output, p.y.get(item, output) + total);
}

class SimpleGrouped final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.layout == cuda_rows_layout().name() && is_grouped_form(p);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double weights = double(p.n) * double(row_bytes(p.format, p.k));
    return gpu_us(weights * p.expected_active(), hardware, 0.25) +
           2.0 * double(p.n) * double(p.k) * p.expected_pairs() / (0.05 * hardware.ceilings.f32_gflops) * 1e-3;
  }
  void run(const Args& a, const Executor& executor) const override {
    const GroupedParams params = grouped_params(a);
    if (params.pairs == 0) return;
    const FileRows rows{static_cast<int64_t>(row_bytes(a.weights->format, a.weights->k)), a.x};
    const dim3 grid(static_cast<unsigned>(a.sum ? a.routing.rows : params.pairs),
                    static_cast<unsigned>(ceil_div(params.outputs, kWarps)));
    with_format(a.weights->format, [&]<DType F>() {
      multiply<F><<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(executor.queue)>>>(params, rows);
    });
    check_cuda(cudaGetLastError(), "starting a grouped linear layer");
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_simple() {
  static const SimpleGrouped kernel;
  return &kernel;
}

}  // namespace millrace
