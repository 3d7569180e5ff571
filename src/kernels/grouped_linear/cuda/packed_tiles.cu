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
    return tiles_us(p, hardware, {kPairs, 0.35, 0.4}, row_bytes, double(size(product_type(p.pairs(), p.invariant))));
  }
  // A step may have fewer pairs than its bucket, and then f32 products.
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    const int64_t each = std::max(p.pairs() * int64_t(size(product_type(p.pairs(), p.invariant))),
                                  4 * std::min(p.pairs(), kRoundedPairs));
    return p.sum ? static_cast<size_t>(each * p.n) : 0;
  }

  void run(const Args& a, const Executor& executor) const override {
    GroupedParams params = grouped_params(a);
    if (params.pairs == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products{product_type(params.pairs, a.invariant), params.pairs, params.n, params.n,
                          executor.workspace};
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
  static constexpr int64_t kRoundedPairs = 4096;

  // The products of a prompt's pairs are rounded to bf16: writing and reading f32 would take a tenth of the time.
  static DType product_type(int64_t pairs, bool invariant) {
    return pairs >= kRoundedPairs && !invariant ? DType::BF16 : DType::F32;
  }
  static size_t size(DType type) { return type == DType::BF16 ? 2 : 4; }
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
