#include "kernels/linear/rows8/kernel.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/linear/estimate.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/rows8.h"
#include "kernels/linear/rows8/tuned.h"

namespace millrace {
namespace {

constexpr int64_t kElementsWorthARegion = 1 << 14;  // a few microseconds of quantizing

constexpr int64_t kPiecesPerThread = MR_PIECES;
constexpr double kFlopsToQuantize = 40;          // an element of x
constexpr double kProductsOfAResult = 150;       // that scaling and writing it takes as long as, in prompts
constexpr int64_t kRowsInCache = MR_PANEL_ROWS;  // of x, for one stretch of k
constexpr int64_t kStripsTogether =
    std::max({MR_SMALL_STREAMS, MR_NIBBLE_STREAMS, MR_K_STREAMS, MR_K_MIN_STREAMS});  // in decode
constexpr int64_t kFewestRows = 64;  // that are worth unpacking a panel for

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The int8 peak of an instruction set, relative to others of its architecture.
constexpr std::pair<Isa, double> kInt8Rates[] = {{Isa::Neon, 0.2}, {Isa::DotProd, 1},    {Isa::I8mm, 2}, {Isa::Bf16, 2},
                                                 {Isa::Avx2, 1},   {Isa::Avx512Vnni, 4}, {Isa::Amx, 32}};

// What unpacking a format takes, relative to Q4_0. Measured on a Neoverse-V1 with SDOT.
double unpack_effort(DType format) {
  switch (format) {
    case DType::Q8_0:
      return 0.8;
    case DType::Q4_0:
      return 1.0;
    case DType::Q4_1:
      return 1.7;
    case DType::IQ4_NL:
      return 1.9;
    case DType::Q4_K:
    case DType::IQ4_XS:
      return 2.1;
    case DType::Q5_0:
    case DType::Q3_K:
      return 2.4;
    case DType::Q6_K:
      return 2.8;
    case DType::Q5_1:
      return 3.0;
    case DType::Q5_K:
    case DType::Q2_K:
      return 3.3;
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return 0.0;
  }
  return 0.0;
}

// The same where bytes of nibbles are multiplied as they are.
double nibble_effort(DType format) {
  if (format == DType::Q4_1) return 1.4;
  return format == DType::Q4_K ? 1.3 : unpack_effort(format);
}

// What was measured is the peak of the best instruction set; a lesser one has a part of that.
double part_of_peak(Isa isa, IsaSet machine) {
  double own = 1, best = 0.2;
  for (const auto& [set, rate] : kInt8Rates) {
    if (set == isa) own = rate;
    if (machine.has(set)) best = std::max(best, rate);
  }
  return own / best;
}

}  // namespace

bool Rows8Kernel::can_run(const Problem& p, const Hardware& hardware) const {
  const bool packed = p.layout == rows8_layout().name() && packed_block_bytes(p.format) > 0;
  const bool plain = p.layout == rows_layout().name() && (p.format == DType::F16 || p.format == DType::BF16);
  return (packed || (plain && method_.plain_rows)) && p.precision == Precision::Fast && hardware.isa.has(method_.isa) &&
         p.m >= method_.min_m && p.m <= method_.max_m;
}

double Rows8Kernel::estimate_us(const Problem& p, const Hardware& hardware) const {
  const Ceilings& ceilings = hardware.ceilings;
  const double bytes_us = reading_us(p, method_.memory_share, hardware);
  // Panels are unpacked once for all rows, strips again for every tile of them.
  const double times = method_.strips_per_panel > 0 ? 1 : double(ceil_div(p.m, method_.tile_rows));
  const double effort = method_.whole_nibbles ? nibble_effort(p.format) : unpack_effort(p.format);
  const double unpacking = method_.unpack_rows + method_.unpack_effort_rows * effort;
  const double gops = method_.compute_share * part_of_peak(method_.isa, hardware.isa) * ceilings.int8_gops;
  const double rows = double(round_up(p.m, method_.row_step)) + times * unpacking;
  const double depth = double(p.k) + (method_.strips_per_panel > 0 ? kProductsOfAResult : 0);
  const double compute_us = 2e-3 * double(p.n) * depth * rows / gops;
  const double quantize_us = 1e-3 * kFlopsToQuantize * double(p.m) * double(p.k) / ceilings.f32_gflops;
  // Reading and computing overlap, but not perfectly where they take about as long.
  const double overlapped = std::pow(std::pow(bytes_us, 4) + std::pow(compute_us, 4), 0.25);
  return ceilings.region_us + quantize_us + overlapped;
}

size_t Rows8Kernel::x_bytes(int64_t m, int64_t k) const { return aligned(method_.x_bytes(m, k)); }

size_t Rows8Kernel::workspace_bytes(const Problem& p, const Hardware& hardware) const {
  return x_bytes(p.m, p.k) + aligned(method_.scratch_bytes) * static_cast<size_t>(hardware.threads);
}

void Rows8Kernel::quantize(const Args& args, const Executor& executor) const {
  const int64_t m = args.x.rows, tile = method_.tile_rows, tiles = ceil_div(m, tile);
  if (m * args.x.cols < kElementsWorthARegion) return method_.quantize(args, 0, m, executor.workspace);
  executor.pool->parallel_for(tiles, ceil_div(tiles, 4 * executor.pool->size()), [&](int64_t begin, int64_t end) {
    method_.quantize(args, begin * tile, std::min(end * tile, m), executor.workspace);
  });
}

// Workers take pieces as they come free: enough of them that the last one does not make the others wait.
Rows8Kernel::Split Rows8Kernel::split(int64_t strips, int64_t m, int threads) const {
  const int64_t panel = method_.strips_per_panel;
  if (panel == 0) return {round_up(ceil_div(strips, kPiecesPerThread * threads), kStripsTogether), m};
  // More rows share the unpacking of a panel, until they push each other out of the L2 cache. Where there are too few
  // panels for the workers, they share the rows instead.
  const int64_t panels = ceil_div(strips, panel);
  const int64_t too_few_panels = std::min(ceil_div(4 * threads, panels), ceil_div(m, kFewestRows));
  const int64_t row_blocks = std::max(ceil_div(m, kRowsInCache), too_few_panels);
  const int64_t rows = round_up(ceil_div(m, row_blocks), method_.tile_rows);
  const int64_t along_n = ceil_div(kPiecesPerThread * threads, ceil_div(m, rows));
  return {std::clamp<int64_t>(panels / along_n, 1, kMostPanels) * panel, rows};
}

void Rows8Kernel::run(const Args& args, const Executor& executor) const {
  const int64_t m = args.x.rows, strips = ceil_div(args.weights->n, kPackedRows);
  if (m == 0 || strips == 0) return;
  quantize(args, executor);
  const Split step = split(strips, m, executor.pool->size());
  const int64_t along_n = ceil_div(strips, step.strips), pieces = along_n * ceil_div(m, step.rows);
  std::byte* scratch = executor.workspace + x_bytes(m, args.weights->k);
  executor.pool->share(pieces, 1, [&](int worker, int64_t begin, int64_t end) {
    std::byte* own = scratch + static_cast<size_t>(worker) * aligned(method_.scratch_bytes);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t strip = i % along_n * step.strips, row = i / along_n * step.rows;
      const Rows8Piece piece{strip, std::min(strip + step.strips, strips), row, std::min(row + step.rows, m)};
      method_.multiply(args, executor.workspace, own, piece);
    }
  });
}

}  // namespace millrace
