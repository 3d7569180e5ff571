#include "kernels/linear/rows8/kernel.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rounding.h"
#include "base/thread_pool.h"
#include "kernels/linear/estimate.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/rows8.h"
#include "kernels/linear/rows8/tuned.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kElementsWorthARegion = 1 << 14;  // a few microseconds of quantization

constexpr int64_t kPiecesPerThread = MR_PIECES;
constexpr double kOutgrown = 0.78;               // factor on memory_share on cores with Rows8Method::outgrown_with
constexpr double kFlopsToQuantize = 40;          // per element of x
constexpr double kProductsOfAResult = 150;       // prompts: cost of scaling and storing an output
constexpr int64_t kRowsInCache = MR_PANEL_ROWS;  // rows of x per stretch of k that stay in the L2 cache
static_assert(kPackedRows == kStripRows);
constexpr int64_t kStripsTogether =
    std::max({MR_SMALL_STREAMS, MR_NIBBLE_STREAMS, MR_K_STREAMS, MR_K_MIN_STREAMS});  // decode
constexpr int64_t kFewestRows = 64;  // fewer rows do not repay unpacking a panel

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// int8 peak of each instruction set, relative to others of its architecture.
constexpr std::pair<Isa, double> kInt8Rates[] = {{Isa::Neon, 0.2}, {Isa::DotProd, 1},    {Isa::I8mm, 2}, {Isa::Bf16, 2},
                                                 {Isa::Avx2, 1},   {Isa::Avx512Vnni, 4}, {Isa::Amx, 32}};

// Cost of unpacking a format relative to Q4_0. Measured on a Neoverse-V1 with SDOT.
double unpack_effort(DType format) {
  switch (format) {
    case DType::Q8_0:
    case DType::F8_E4M3:
      return 0.8;
    case DType::Q4_0:
      return 1.0;
    case DType::Q4_1:
      return 1.7;
    case DType::IQ4_NL:
    case DType::MXFP4:
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

// The same for methods that multiply bytes of two nibbles without separating them.
double nibble_effort(DType format) {
  if (format == DType::Q4_1) return 1.4;
  return format == DType::Q4_K ? 1.3 : unpack_effort(format);
}

// Scales and minima per 32 elements. Methods that scale their sums per group multiply each of them with every row of x.
int scales_of_group(DType format) {
  switch (format) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q6_K:
    case DType::Q3_K:
      return 2;
    case DType::Q2_K:
      return 4;
    default:
      return 1;
  }
}

// The measured int8 peak belongs to the machine's best instruction set; this is the fraction that `isa` reaches.
double part_of_peak(Isa isa, IsaSet machine) {
  double own = 1, best = 0.2;
  for (const auto& [set, rate] : kInt8Rates) {
    if (set == isa) own = rate;
    if (machine.has(set)) best = std::max(best, rate);
  }
  return own / best;
}

// Kernels of the small ops that run() fuses: the norm in front, and silu(gate) * up.
const KernelList<NormOp> kNorms = NormOp::cpu();
const KernelList<ActivationOp> kActivations = ActivationOp::cpu();

// Redirects the outputs of a piece to the contiguous buffer `to` instead of y.
LinearArgs redirected(const LinearArgs& args, const Rows8Piece& piece, float* to) {
  const int64_t width = (piece.strip_end - piece.strip_begin) * kPackedRows;
  const int64_t before = piece.m_begin * width + piece.strip_begin * kPackedRows;
  LinearArgs out = args;
  // Address of y's origin. It may lie outside the buffer, so it is computed with integers.
  const auto begin = reinterpret_cast<uintptr_t>(to) - static_cast<uintptr_t>(before) * sizeof(float);
  out.y = {DType::F32, args.x.rows, args.weights->n, width, reinterpret_cast<std::byte*>(begin)};
  return out;
}

}  // namespace

bool Rows8Kernel::can_run(const Problem& p, const Hardware& hardware) const {
  const bool packed = p.layout == rows8_layout().name() && packed_block_bytes(p.format) > 0;
  const bool plain = p.layout == rows_layout().name() && p.format == DType::BF16;
  if (p.gated && (!packed || p.n / 2 % kPackedRows != 0)) return false;
  return (packed || (plain && method_.plain_rows)) && p.precision == Precision::Fast && hardware.isa.has(method_.isa) &&
         p.m >= method_.min_m && p.m <= method_.max_m;
}

double Rows8Kernel::estimate_us(const Problem& p, const Hardware& hardware) const {
  const Ceilings& ceilings = hardware.ceilings;
  const bool outgrown = method_.outgrown_with && hardware.isa.has(*method_.outgrown_with);
  const double bytes_us = reading_us(p, method_.memory_share * (outgrown ? kOutgrown : 1), hardware);
  // Panels are unpacked once for all rows, strips once per tile of rows.
  const double times = method_.strips_per_panel > 0 ? 1 : double(ceil_div(p.m, method_.tile_rows));
  const double effort = method_.whole_nibbles ? nibble_effort(p.format) : unpack_effort(p.format);
  const double unpacking = method_.unpack_rows + method_.unpack_effort_rows * effort;
  const double part = part_of_peak(method_.isa, hardware.isa);
  const double gops = method_.compute_share * (part < 1 ? method_.beside_faster : 1) * part * ceilings.int8_gops;
  const double scaling = 1 + method_.scale_effort * (scales_of_group(p.format) - 1);
  const double rows = scaling * double(round_up(p.m, method_.row_step)) + times * unpacking;
  const double depth = double(p.k) + (method_.strips_per_panel > 0 ? kProductsOfAResult : 0);
  const double compute_us = 2e-3 * double(p.n) * depth * rows / gops;
  const double quantize_us = 1e-3 * kFlopsToQuantize * double(p.m) * double(p.k) / ceilings.f32_gflops;
  // Reading and computing overlap, but not fully when both take about the same time.
  const double overlapped = std::pow(std::pow(bytes_us, 4) + std::pow(compute_us, 4), 0.25);
  const double silu_us = p.gated ? row_work_us(p.m * p.n / 2, 100, hardware) - ceilings.region_us : 0;
  return ceilings.region_us + quantize_us + overlapped + std::max(silu_us, 0.0);
}

PieceLimits Rows8Kernel::limits() const {
  const int64_t prepared = method_.quantized_rows > 0 ? method_.quantized_rows : method_.tile_rows;
  return {method_.tile_rows,    prepared, kRowsInCache, method_.strips_per_panel, method_.max_m == INT64_MAX,
          method_.scratch_bytes};
}

size_t Rows8Kernel::x_bytes(int64_t m, int64_t k) const { return aligned(method_.x_bytes(m, k)); }

// Scratch memory of a worker: a panel, plus gate and up of a piece.
size_t Rows8Kernel::worker_bytes(int64_t n, int64_t m, int threads, bool gated) const {
  if (!gated) return aligned(method_.scratch_bytes);
  const int64_t strips = ceil_div(n / 2, kPackedRows);
  Split most = split(strips, m, threads);
  if (method_.strips_per_panel > 0) {  // runs with fewer rows than planned may use larger pieces
    most = {kMostPanels * method_.strips_per_panel, round_up(std::min(m, kRowsInCache), method_.tile_rows)};
  }
  const int64_t outputs = most.strips * kPackedRows * most.rows;
  return aligned(method_.scratch_bytes) + aligned(2 * sizeof(float) * static_cast<size_t>(outputs));
}

size_t Rows8Kernel::workspace_bytes(const Problem& p, const Hardware& hardware) const {
  return x_bytes(p.m, p.k) + worker_bytes(p.n, p.m, hardware.threads, p.gated) * static_cast<size_t>(hardware.threads);
}

void Rows8Kernel::quantize(const Args& args, const Executor& executor, Matrix x) const {
  const int64_t m = x.rows, tile = limits().prepared_rows;
  const int64_t tiles = ceil_div(m, tile);
  const Kernel<NormOp>* norm = args.norm != nullptr ? &first_that_runs(kNorms, {}, *executor.hardware) : nullptr;
  Args of_x = args;
  of_x.x = x;
  const auto rows = [&](int64_t begin, int64_t end) {
    if (norm != nullptr) {
      const int64_t count = end - begin;
      norm->run(
          {NormKind::Rms, args.x.rows_from(begin, count), x.rows_from(begin, count), args.norm, nullptr, args.epsilon},
          {});
    }
    method_.quantize(of_x, begin, end, executor.workspace);
  };
  if (m * x.cols < kElementsWorthARegion) return rows(0, m);
  executor.pool->parallel_for(tiles, ceil_div(tiles, 4 * executor.pool->size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rows(i * tile, std::min((i + 1) * tile, m));
  });
}

// Workers take pieces dynamically. There are enough pieces that the last one does not leave the other workers idle.
Rows8Kernel::Split Rows8Kernel::split(int64_t strips, int64_t m, int threads) const {
  const int64_t panel = method_.strips_per_panel;
  if (panel == 0) return {round_up(ceil_div(strips, kPiecesPerThread * threads), kStripsTogether), m};
  // More rows share the unpacking of a panel, until they no longer fit the L2 cache. If there are fewer panels than
  // workers need, the rows are split as well.
  const int64_t panels = ceil_div(strips, panel);
  const int64_t too_few_panels = std::min(ceil_div(4 * threads, panels), ceil_div(m, kFewestRows));
  const int64_t row_blocks = std::max(ceil_div(m, kRowsInCache), too_few_panels);
  const int64_t rows = round_up(ceil_div(m, row_blocks), method_.tile_rows);
  const int64_t along_n = ceil_div(kPiecesPerThread * threads, ceil_div(m, rows));
  return {std::clamp<int64_t>(panels / along_n, 1, kMostPanels) * panel, rows};
}

// The strips of a piece belong to gate; the matching strips of up follow at a distance of all of gate's strips. Both
// results stay in the cache until they are combined.
void Rows8Kernel::multiply_gated(const Args& args, const Executor& executor, const Rows8Piece& piece,
                                 std::byte* scratch) const {
  const int64_t strips = args.weights->n / 2 / kPackedRows, rows = piece.m_end - piece.m_begin;
  const int64_t width = (piece.strip_end - piece.strip_begin) * kPackedRows;
  auto* sums = reinterpret_cast<float*>(scratch + aligned(method_.scratch_bytes));
  Rows8Piece half = piece;
  half.strip_after = piece.strip_begin + strips;
  Matrix parts[2];
  for (auto& part : parts) {
    method_.multiply(redirected(args, half, sums), executor.workspace, scratch, half);
    part = {DType::F32, rows, width, width, reinterpret_cast<std::byte*>(sums)};
    sums += rows * width;
    half.strip_begin += strips;
    half.strip_end += strips;
    half.strip_after = piece.strip_end;
  }
  const Matrix y = args.y.rows_from(piece.m_begin, rows).columns(piece.strip_begin * kPackedRows, width);
  first_that_runs(kActivations, {}, *executor.hardware).run({Activation::Silu, parts[0], &parts[1], y}, {});
}

void Rows8Kernel::run(const Args& args, const Executor& executor) const {
  const int64_t n = args.gated ? args.weights->n / 2 : args.weights->n;
  const int64_t m = args.x.rows, strips = ceil_div(n, kPackedRows);
  if (m == 0 || strips == 0) return;
  quantize(args, executor, args.norm != nullptr ? args.normed.first_rows(m) : args.x);
  const Split step = split(strips, m, executor.pool->size());
  const int64_t along_n = ceil_div(strips, step.strips), pieces = along_n * ceil_div(m, step.rows);
  std::byte* scratch = executor.workspace + x_bytes(m, args.weights->k);
  const size_t each = worker_bytes(args.weights->n, m, executor.pool->size(), args.gated);
  executor.pool->share(pieces, 1, [&](int worker, int64_t begin, int64_t end) {
    std::byte* own = scratch + static_cast<size_t>(worker) * each;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t strip = i % along_n * step.strips, row = i / along_n * step.rows;
      const int64_t strip_end = std::min(strip + step.strips, strips);
      const Rows8Piece piece{strip, strip_end, row, std::min(row + step.rows, m), strip_end};
      if (args.gated) {
        multiply_gated(args, executor, piece, own);
      } else {
        method_.multiply(args, executor.workspace, own, piece);
      }
    }
  });
}

}  // namespace millrace
