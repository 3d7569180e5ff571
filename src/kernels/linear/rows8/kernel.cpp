#include "kernels/linear/rows8/kernel.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/rows8.h"

namespace millrace {
namespace {

constexpr int64_t kElementsWorthARegion = 1 << 14;  // a few microseconds of quantizing

constexpr int64_t kRowsInCache = 512;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The int8 peak of an instruction set, relative to others of its architecture.
constexpr std::pair<Isa, double> kInt8Rates[] = {{Isa::DotProd, 1}, {Isa::I8mm, 2},       {Isa::Bf16, 2},
                                                 {Isa::Avx2, 1},    {Isa::Avx512Vnni, 4}, {Isa::Amx, 32}};

// What was measured is the peak of the best instruction set; a lesser one has a part of that.
double part_of_peak(Isa isa, IsaSet machine) {
  double own = 1, best = 1;
  for (const auto& [set, rate] : kInt8Rates) {
    if (set == isa) own = rate;
    if (machine.has(set)) best = std::max(best, rate);
  }
  return own / best;
}

}  // namespace

bool Rows8Kernel::can_run(const Problem& p, const Hardware& hardware) const {
  return p.layout == rows8_layout().name() && p.precision == Precision::Fast && hardware.isa.has(method_.isa) &&
         packed_block_bytes(p.format) > 0 && p.m >= method_.min_m && p.m <= method_.max_m;
}

double Rows8Kernel::estimate_us(const Problem& p, const Hardware& hardware) const {
  const double weights = double(p.n) * double(p.k);
  const double bytes_us =
      1e-3 * double(rows8_layout().bytes(p.format, p.n, p.k)) / (method_.memory_share * hardware.ceilings.read_gbs);
  const double gops = method_.compute_share * part_of_peak(method_.isa, hardware.isa) * hardware.ceilings.int8_gops;
  const double rows = double(p.m) + method_.unpack_rows;
  const double compute_us = 2e-3 * weights * rows / gops;
  return hardware.ceilings.region_us + std::max(bytes_us, compute_us);
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
  if (panel == 0) return {ceil_div(strips, 8 * threads), m};
  // Few rows per panel waste the unpacking of it, many push each other out of the L2 cache.
  const int64_t rows = round_up(ceil_div(m, ceil_div(m, kRowsInCache)), method_.tile_rows);
  const int64_t along_n = ceil_div(8 * threads, ceil_div(m, rows));
  return {std::clamp<int64_t>(round_up(ceil_div(strips, along_n), panel), panel, 4 * panel), rows};
}

void Rows8Kernel::run(const Args& args, const Executor& executor) const {
  const int64_t m = args.x.rows, strips = ceil_div(args.weights->n, kPackedRows);
  if (m == 0 || strips == 0) return;
  quantize(args, executor);
  const Split step = split(strips, m, executor.pool->size());
  const int64_t along_n = ceil_div(strips, step.strips), pieces = along_n * ceil_div(m, step.rows);
  std::byte* scratch = executor.workspace + x_bytes(m, args.weights->k);
  std::atomic<int64_t> next{0};
  executor.pool->run([&](int worker) {
    for (int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) {
      const int64_t strip = i % along_n * step.strips, row = i / along_n * step.rows;
      const Rows8Piece piece{strip, std::min(strip + step.strips, strips), row, std::min(row + step.rows, m)};
      method_.multiply(args, executor.workspace, scratch + static_cast<size_t>(worker) * aligned(method_.scratch_bytes),
                       piece);
    }
  });
}

}  // namespace millrace
