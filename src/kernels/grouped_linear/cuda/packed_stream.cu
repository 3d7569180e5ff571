// Host side of the even stream of quantized weights (packed_stream.cuh).
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

#include <cstdint>

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GROUPED_STREAM(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int kMostShared = 222 * 1024;  // the static part takes the rest
// A share of this many tiles of pairs, wherever it begins, is in at most one more: kStreamMostSegments is enough.
constexpr int kMostTilesEach = kStreamMostSegments - 1;

template <int kGroups>
class PackedStream final : public Kernel<GroupedLinearOp> {
 public:
  explicit PackedStream(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || hardware.architecture != 90 || !is_packed_grouped(p) || p.groups > kStreamMostGroups)
      return false;
    const int64_t pair_tiles = most_tiles(p.pairs(), p.groups, kTokens), tiles = tiles_of(p.gated ? p.n / 2 : p.n);
    const DType format = format_of_units(p.format);
    return pair_tiles <= int64_t{hardware.cores} * kMostTilesEach &&
           pair_tiles * tiles <= int64_t{UINT32_MAX} / hardware.cores &&  // StreamShare multiplies in 32 bits
           block_of(format, p.gated).most_x_bytes >= x_bytes(format, p.rows, p.k);
  }
  // Weights stream once for each tile of pairs, and warps decode them meanwhile.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    // Until the first units are there, and x is staged. With `sum` units arrive while the kernel in front ends.
    const double begin_us = p.sum ? 4 : 5.5;
    const DType format = format_of_units(p.format);
    const double bytes = double(packed_linear_bytes(format, p.n, p.k)) * std::max(p.expected_active(), 0.01);
    const double instructions = format == DType::MXFP4 ? 1.7 + 0.5 * kGroups : 1.2 + 1.0 * kGroups;  // of a weight
    const double decoding = decode_us(p, format, expected_tiles(p, kTokens), instructions, 0.5, hardware);
    return begin_us + std::max(decoding, bytes / (0.88 * hardware.ceilings.read_gbs) * 1e-3) +
           adding_us(p, 4, hardware);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return f32_products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    if (a.routing.pairs() == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = f32_products_of(a, executor.workspace);
    const DType format = format_of_units(a.weights->format);
    const Block block = block_of(format, a.gated);
    PackedStreamParams params{grouped_params(a), units_of(a.weights->k), 0, block.most_x_bytes};
    params.tiles = static_cast<int>(tiles_of(params.p.outputs));
    if (a.sum) params.p.y = products;
    LaunchShape shape;
    const int64_t items = most_tiles(a.routing.pairs(), a.weights->groups, kTokens) * params.tiles;
    shape.grid = dim3(static_cast<unsigned>(std::min<int64_t>(items, executor.hardware->cores)));
    shape.threads = 32 * block.warps;
    shape.shared_bytes = kMostShared;
    shape.most_shared = true;
    check_cuda(
        with_packed_format(format, [&](auto f) { return launch_packed_stream<f.value, kGroups>(params, shape, step); }),
        "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }

 private:
  static constexpr int kTokens = 8 * kGroups;

  static int64_t tiles_of(int64_t outputs) { return ceil_div(outputs, kUnitRows); }
  static int units_of(int64_t k) { return static_cast<int>(ceil_div(k, kUnitColumns)); }

  // Of one tile of pairs.
  static int x_bytes(DType format, int64_t rows, int64_t k) {
    const int tokens = static_cast<int>(std::min<int64_t>(rows, kTokens));  // a row's groups are distinct
    int bytes = 0;
    with_packed_format(format, [&](auto f) {
      bytes = StagedX<f.value, kGroups>::bytes(tokens, units_of(k));
      return cudaSuccess;
    });
    return bytes;
  }
  struct Block {
    int warps, most_x_bytes;
  };
  static Block block_of(DType format, bool gated) {
    Block block{};
    with_packed_format(format, [&](auto f) {
      constexpr int kUnit = Unit<f.value>::kSize;
      block.warps = gated ? kStreamWarps<f.value, 2> : kStreamWarps<f.value, 1>;
      block.most_x_bytes = kMostShared - block.warps * (gated ? 2 : 1) * kUnit;
      return cudaSuccess;
    });
    return block;
  }

  std::string_view name_;
};

}  // namespace

std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed_stream() {
  static const PackedStream<1> few("cuda_packed_stream_8");
  static const PackedStream<2> more("cuda_packed_stream_16");
  static const Kernel<GroupedLinearOp>* const all[] = {&few, &more};
  return all;
}

}  // namespace millrace
