#include "kernels/linear/rows8/kernel.h"

#include <algorithm>
#include <atomic>

#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/rows8.h"

namespace millrace {
namespace {

constexpr int64_t kElementsWorthARegion = 1 << 14;  // a few microseconds of quantizing

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

bool Rows8Kernel::can_run(const Problem& p, const Hardware& hardware) const {
  return p.layout == rows8_layout().name() && p.precision == Precision::Fast && hardware.isa.has(method_.isa) &&
         packed_block_bytes(p.format) > 0 && p.m >= method_.min_m && p.m <= method_.max_m;
}

double Rows8Kernel::estimate_us(const Problem& p, const Hardware& hardware) const {
  const double weights = double(p.n) * double(p.k);
  const double bytes_us =
      1e-3 * double(rows8_layout().bytes(p.format, p.n, p.k)) / (method_.memory_share * hardware.ceilings.read_gbs);
  const double compute_us = 2e-3 * weights * double(p.m) / (method_.compute_share * hardware.ceilings.int8_gops);
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

void Rows8Kernel::run(const Args& args, const Executor& executor) const {
  const int64_t m = args.x.rows, strips = ceil_div(args.weights->n, kPackedRows);
  if (m == 0 || strips == 0) return;
  quantize(args, executor);
  // Workers take pieces as they come free: enough of them that the last one does not make the others wait.
  const int64_t share = ceil_div(strips, 8 * executor.pool->size());
  const int64_t step = method_.strips_per_piece > 0 ? method_.strips_per_piece : share;
  const int64_t rows = method_.rows_per_piece > 0 ? method_.rows_per_piece : m;
  const int64_t along_n = ceil_div(strips, step), pieces = along_n * ceil_div(m, rows);
  std::byte* scratch = executor.workspace + x_bytes(m, args.weights->k);
  std::atomic<int64_t> next{0};
  executor.pool->run([&](int worker) {
    for (int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) {
      const int64_t strip = i % along_n * step, row = i / along_n * rows;
      const Rows8Piece piece{strip, std::min(strip + step, strips), row, std::min(row + rows, m)};
      method_.multiply(args, executor.workspace, scratch + static_cast<size_t>(worker) * aligned(method_.scratch_bytes),
                       piece);
    }
  });
}

}  // namespace millrace
