// Host side of the grouped kernel for quantized weights.
#include "kernels/grouped_linear/cuda/packed.cuh"

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GROUPED_INSTANCES(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE
extern template cudaError_t launch_grouped_packed<DType::MXFP4, 2>(const GroupedPackedParams&, dim3, const CudaStep&);

namespace {

// Tiles of 16 pairs pay off for MXFP4 only, whose blocks need few registers (measured on an H200).
constexpr bool has_instance(DType format, int groups) { return groups != 2 || format == DType::MXFP4; }

template <int kGroups>
class PackedGrouped final : public Kernel<GroupedLinearOp> {
 public:
  // `most_warps_k`: warps that share K. More give few pairs more blocks; fewer read x less often.
  PackedGrouped(std::string_view name, int most_warps_k) : name_(name), most_warps_k_(most_warps_k) {}
  std::string_view name() const override { return name_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_packed_grouped(p) && has_instance(format_of_units(p.format), kGroups) &&
           most_tiles(p.pairs(), p.groups, kTokens) <= 65535;
  }
  // Weights stream at the bandwidth of the device or at the rate of decoding, once for each tile of pairs. A block
  // waits about 3 us for offsets, rows and x before its first product; some four of a multiprocessor do so at once.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const DType format = format_of_units(p.format);
    const double tiles = expected_tiles(p, kTokens);
    const double bytes = double(packed_linear_bytes(format, p.n, p.k)) * std::max(p.expected_active(), 0.01);
    const double part = warps_k(p.k) > 1 ? 0.7 : 0.88;  // of the bandwidth
    const double blocks = tiles * double(ceil_div(ceil_div(p.n, kUnitRows), kPackedWarps / warps_k(p.k)));
    const double begin_us = 3 * blocks / (4.0 * hardware.cores), busy = std::min(1.0, blocks / (2.0 * hardware.cores));
    return begin_us +
           std::max(decode_us(p, format, tiles, 1.6 + 0.6 * kGroups, 0.4, hardware),
                    bytes / (part * hardware.ceilings.read_gbs) * 1e-3) /
               busy +
           adding_us(p, 4, hardware);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return f32_products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    if (a.routing.pairs() == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = f32_products_of(a, executor.workspace);
    GroupedPackedParams params = shaped(a, *executor.hardware);
    if (a.sum) params.p.y = products;
    const dim3 grid(static_cast<unsigned>(ceil_div(tiles_of(a), kPackedWarps / params.warps_k)),
                    static_cast<unsigned>(most_tiles(a.routing.pairs(), a.weights->groups, kTokens)));
    check_cuda(with_packed_format(format_of_units(a.weights->format),
                                  [&](auto format) {
                                    if constexpr (has_instance(format.value, kGroups)) {
                                      return launch_grouped_packed<format.value, kGroups>(params, grid, step);
                                    }
                                    return cudaErrorNotSupported;
                                  }),
               "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }

 private:
  static constexpr int kTokens = 8 * kGroups;

  int warps_k(int64_t k) const {
    const int64_t units = ceil_div(k, kUnitColumns);
    return std::min(most_warps_k_, units < 2 ? 1 : units < 4 ? 2 : 4);
  }
  static int64_t tiles_of(const Args& a) { return ceil_div(a.weights->n, kUnitRows); }

  // Few pairs leave multiprocessors idle unless warps share K. The number of rows does not count: a row's bits must
  // not depend on the batch.
  GroupedPackedParams shaped(const Args& a, const Hardware& hardware) const {
    const int units = static_cast<int>(ceil_div(a.weights->k, kUnitColumns));
    const int warps_k = this->warps_k(a.weights->k);
    const int tokens = static_cast<int>(std::min<int64_t>(a.routing.rows, kTokens));  // a row's groups are distinct
    const DType format = format_of_units(a.weights->format);
    const int unit_bytes = tokens * kUnitColumns * 2 + kTokens * 64 * (format == DType::Q6_K ? 2 : 1);
    const int share = (shared_kilobytes({hardware.cores, hardware.architecture}) - 27) * 1024 /
                      packed_blocks_resident(format, kGroups);
    const int room = std::max(1, share / unit_bytes / warps_k) * warps_k;
    return {grouped_params(a), units, warps_k, std::min(room, static_cast<int>(round_up(units, warps_k))), tokens};
  }

  std::string_view name_;
  int most_warps_k_;
};

}  // namespace

bool is_packed_grouped(const GroupedLinearProblem& p) {
  const bool has_units = with_packed_format(format_of_units(p.format), [](auto) { return cudaSuccess; }) == cudaSuccess;
  return p.precision == Precision::Fast && has_units && p.x == DType::BF16 &&
         cuda_packed_type(p.layout) == DType::BF16 && p.k % 32 == 0 && is_grouped_form(p) &&
         (!p.gated || p.n % (2 * kUnitRows) == 0);
}

std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed() {
  static const PackedGrouped<1> few("cuda_packed_8", 4), wide("cuda_packed_8_wide", 1);
  static const PackedGrouped<2> more("cuda_packed_16", 1);
  static const PackedGrouped<4> many("cuda_packed_32", 1);
  static const Kernel<GroupedLinearOp>* const all[] = {&few, &wide, &more, &many};
  return all;
}

}  // namespace millrace
