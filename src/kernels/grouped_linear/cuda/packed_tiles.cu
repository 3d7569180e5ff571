// Host side of the grouped kernels for quantized weights and many pairs.
#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GROUPED_TILES(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int kTilesOfBlock = 8;

class PackedTiles final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_packed_wgmma_64"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && hardware.architecture == 90 && is_packed_grouped(p) &&
           most_tiles(p.pairs(), p.groups, kPairs) <= 65535;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double row_bytes = double(packed_linear_bytes(format_of_units(p.format), p.n, p.k)) / double(p.n);
    return tiles_us(p, hardware, {kPairs, 0.35, 0.4}, row_bytes, double(product_bytes(p)));
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    GroupedParams params = grouped_params(a);
    if (params.pairs == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = products_of(a, executor.workspace);
    if (a.sum) params.y = products;
    const dim3 grid(static_cast<unsigned>(ceil_div(ceil_div(params.n, kUnitRows), kTilesOfBlock)),
                    static_cast<unsigned>(most_tiles(params.pairs, params.groups, kPairs)));
    check_cuda(with_packed_format(format_of_units(a.weights->format),
                                  [&](auto format) { return launch_packed_tiles<format.value>(params, grid, step); }),
               "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }

 private:
  static constexpr int kPairs = kPackedTilePairs;
};

}  // namespace

bool is_packed_grouped(const GroupedLinearProblem& p) {
  const bool has_units = with_packed_format(format_of_units(p.format), [](auto) { return cudaSuccess; }) == cudaSuccess;
  return p.precision == Precision::Fast && has_units && p.x == DType::BF16 &&
         cuda_packed_type(p.layout) == DType::BF16 && p.k % 32 == 0 && is_grouped_form(p) &&
         (!p.gated || p.n % (2 * kUnitRows) == 0);
}

const Kernel<GroupedLinearOp>* cuda_grouped_packed_tiles() {
  static const PackedTiles kernel;
  return &kernel;
}

}  // namespace millrace
