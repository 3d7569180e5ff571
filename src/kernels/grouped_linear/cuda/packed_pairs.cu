// Host side of the grouped kernel for quantized weights and one to four tokens on Hopper.
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GROUPED_PAIRS(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int64_t kMostRows = 4;
constexpr int kMostShared = 220 * 1024;

// How the tiles of a matrix are dealt out.
struct Shares {
  int64_t tiles, rows;  // of a matrix (of gate alone, if gated); of blocks: pairs, or rows with `sum`
  int64_t blocks;       // of a pair; with `sum` clusters of a row, of `split` blocks each
  int split = 1;
  int staged, most;  // units of x in a block; tiles of a block, of all of its pairs and of gate and up
  bool sum;

  Shares(int64_t n, int64_t k, int64_t rows_of_x, int64_t per_row, bool gated, bool sum, int cores)
      : tiles(ceil_div(gated ? n / 2 : n, kUnitRows)), rows(sum ? rows_of_x : rows_of_x * per_row), sum(sum) {
    const int64_t units = ceil_div(k, kUnitColumns), of_tile = gated ? 2 : sum ? per_row : 1;
    const auto sharers = [&](int64_t of) { return std::min(tiles, std::max<int64_t>(1, cores / (rows * of))); };
    blocks = sharers(1);
    most = static_cast<int>(ceil_div(tiles, blocks) * of_tile);
    staged = static_cast<int>(sum ? per_row * units : units);
    if (!sum || 2 * rows > cores) return;
    const auto halved = static_cast<int>(ceil_div(tiles, sharers(2)) * ceil_div(per_row, 2));
    // Barriers of a cluster take the time of about a unit of each warp.
    if ((most - halved) * units <= kRingWarps) return;
    split = 2;
    blocks = sharers(2);
    most = halved;
    staged = static_cast<int>(ceil_div(per_row, 2) * units);
  }
  // The part of the blocks' time that is not spent on waiting for the one with most tiles.
  double even(int64_t per_row) const {
    return double(tiles * (sum ? per_row : 1)) / double(blocks * split * (sum ? most : ceil_div(tiles, blocks)));
  }
};

int bytes_of(DType format, const Shares& shares, int64_t k) {
  int bytes = 0;
  with_packed_format(format, [&](auto f) {
    bytes = packed_pairs_bytes<f.value>(shares.staged, shares.most, static_cast<int>(ceil_div(k, kUnitColumns)),
                                        shares.sum);
    return cudaSuccess;
  });
  return bytes;
}

class PackedPairs final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_packed_pairs"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || hardware.architecture != 90 || !is_packed_grouped(p)) return false;
    if (p.rows > kMostRows || p.per_row > kPairsMostPerRow) return false;
    for (int64_t rows = 1; rows <= p.rows; ++rows) {  // fewer rows have larger shares of blocks, but fewer of them
      if (bytes_of(format_of_units(p.format), shares_of(p, rows, hardware), p.k) > kMostShared) return false;
    }
    return true;
  }
  // Each pair streams its matrix, the second one of a group mostly from the cache. Blocks wait for the routing and x.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const Shares shares = shares_of(p, p.rows, hardware);
    const double each = double(packed_linear_bytes(format_of_units(p.format), p.n, p.k)), active = p.expected_active();
    const double bytes = each * (active + 0.5 * std::max(0.0, p.expected_pairs() - active));
    const double waves = double(ceil_div(shares.blocks * shares.split * shares.rows, hardware.cores));
    const double part = is_table_format(format_of_units(p.format)) ? 0.55 : 0.85;  // of the bandwidth
    return 3 * waves + bytes / (part * shares.even(p.per_row) * hardware.ceilings.read_gbs) * 1e-3;
  }

  void run(const Args& a, const Executor& executor) const override {
    PackedPairsParams params{grouped_params(a), static_cast<int>(ceil_div(a.weights->k, kUnitColumns)), {}};
    if (params.p.pairs == 0) return;
    const Shares shares(a.weights->n, a.weights->k, a.routing.rows, a.routing.per_row, a.gated, a.sum,
                        executor.hardware->cores);
    const DType format = format_of_units(a.weights->format);
    params.shares = TileShares::of(shares.tiles, shares.blocks);
    params.split = shares.split;
    LaunchShape shape;
    shape.grid = dim3(static_cast<unsigned>(shares.blocks * shares.split), static_cast<unsigned>(shares.rows));
    shape.cluster = shares.split;
    shape.threads = kPairsThreads;
    shape.shared_bytes = static_cast<size_t>(bytes_of(format, shares, a.weights->k));
    shape.most_shared = true;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    check_cuda(with_packed_format(format, [&](auto f) { return launch_packed_pairs<f.value>(params, shape, step); }),
               "starting a grouped linear layer");
  }

 private:
  static Shares shares_of(const Problem& p, int64_t rows, const Hardware& hardware) {
    return {p.n, p.k, rows, p.per_row, p.gated, p.sum, hardware.cores};
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_packed_pairs() {
  static const PackedPairs kernel;
  return &kernel;
}

}  // namespace millrace
