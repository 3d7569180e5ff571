// Host side of the grouped kernels for quantized weights and few pairs of a group on Hopper.
#include "kernels/grouped_linear/cuda/packed_flat.cuh"

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GROUPED_FLAT(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

// Microseconds in which the 16 warps of a multiprocessor multiply a unit each, and in which they store an item
// (measured on an H200 for Q4_0, Q8_0 and Q4_K; MXFP4 takes a few instructions less than Q4_K).
double round_us(DType format, int pairs) {
  const bool few_steps = format == DType::Q4_0 || format == DType::Q8_0;
  return (is_table_format(format) ? 2.04 : few_steps ? 1.16 : 1.3) + 0.022 * pairs;
}
constexpr double kStoreUs = 0.8;

int64_t row_blocks(int64_t n) { return ceil_div(ceil_div(n, kUnitRows), kFlatItemTiles); }

template <int kPairs>
class PackedFlat final : public Kernel<GroupedLinearOp> {
 public:
  explicit PackedFlat(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && hardware.architecture == 90 && is_packed_grouped(p) && p.groups <= kFlatMostGroups;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double active = std::max(p.expected_active(), 0.01), each = p.expected_pairs() / active;
    const double tiles = active * (each <= kPairs / 2 ? 1 : each / kPairs + 0.5);
    const double waves = tiles * double(row_blocks(p.n)) / (2.0 * hardware.cores);
    const double units = double(ceil_div(p.k, kUnitColumns));
    const double full = std::clamp(each / kPairs, 0.5, 1.0);  // full tiles wait for their copies of x
    const double item_us = (units * round_us(format_of_units(p.format), kPairs) + kStoreUs) * (1 + 0.6 * (full - 0.5));
    const double multiply_us = std::max(1.0, waves + 0.3) * item_us;
    const double bytes = double(packed_linear_bytes(format_of_units(p.format), p.n, p.k)) * active;
    return 4 + std::max(multiply_us, bytes / (0.92 * hardware.ceilings.read_gbs) * 1e-3) + adding_us(p, 4, hardware);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return f32_products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    GroupedFlatParams params{grouped_params(a), static_cast<int>(ceil_div(a.weights->k, kUnitColumns)),
                             static_cast<int>(row_blocks(a.weights->n))};
    if (params.p.pairs == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = f32_products_of(a, executor.workspace);
    if (a.sum) params.p.y = products;
    const int64_t items = most_tiles(params.p.pairs, params.p.groups, kPairs) * params.row_blocks;
    const auto blocks = static_cast<int>(std::min<int64_t>(items, 2 * executor.hardware->cores));
    check_cuda(with_packed_format(
                   format_of_units(a.weights->format),
                   [&](auto format) { return launch_grouped_flat<format.value, kPairs>(params, blocks, step); }),
               "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }

 private:
  std::string_view name_;
};

}  // namespace

std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed_flat() {
  static const PackedFlat<16> narrow("cuda_packed_flat_16");
  static const PackedFlat<32> wide("cuda_packed_flat_32");
  static const Kernel<GroupedLinearOp>* const all[] = {&narrow, &wide};
  return all;
}

}  // namespace millrace
