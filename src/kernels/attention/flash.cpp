#include "kernels/attention/flash.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace millrace {
namespace {

constexpr int64_t kVectorsWorthARegion = 128;  // query vectors to merge: about ten microseconds

}  // namespace

bool FlashAttention::can_run(const Problem& problem, const Hardware& hardware) const {
  const bool fits = problem.one_head_size() || (problem.latent && problem.value_dim <= problem.key_dim);
  return fits && is_kv_dtype(problem.kv, problem.key_dim) && method_.can_run(problem, hardware);
}

double FlashAttention::estimate_us(const Problem& p, const Hardware& hardware) const {
  const auto reach = [&](int64_t context) {
    return static_cast<double>(p.window > 0 ? std::min<int64_t>(p.window, context) : context);
  };
  // Rows of a chunk attend to everything before them and, on average, to half of the chunk.
  const int64_t chunk = p.rows / std::max<int64_t>(1, p.sequences);
  const double seen =
      reach(p.bidirectional ? p.context : p.context - chunk / 2) * (p.bidirectional && p.window > 0 ? 2 : 1);
  const double flops = 4.0 * static_cast<double>(p.rows) * seen * p.heads * p.key_dim;
  const double bytes = (p.latent ? 1.0 : 2.0) * static_cast<double>(p.sequences) * reach(p.context) * p.kv_heads *
                       static_cast<double>(row_bytes(p.kv, p.key_dim));
  const double compute_us = flops / (1e3 * method_.gflops(p, hardware));
  const double memory_us = bytes / (1e3 * hardware.ceilings.read_gbs);
  return (hardware.threads > 1 ? hardware.ceilings.region_us : 0) + std::max(compute_us, memory_us);
}

size_t FlashAttention::workspace_bytes(const Problem& p, const Hardware& hardware) const {
  return AttentionWorkspace(p.heads, p.key_dim, method_.query_tile, hardware.threads).bytes();
}

void FlashAttention::run(const Args& args, const Executor& executor) const {
  ThreadPool& pool = *executor.pool;
  const AttentionSchedule schedule(args, method_.query_tile, pool.size());
  const AttentionWorkspace space(args.heads, args.kv.key_dim, method_.query_tile, pool.size());
  if (schedule.chunks() == 1) return run_chunk(args, schedule, space, executor.workspace, 0, 0);
  pool.share(schedule.chunks(), 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      run_chunk(args, schedule, space, executor.workspace, worker, static_cast<int>(i));
    }
  });
  join(args, schedule, space, executor);
}

void FlashAttention::run_chunk(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
                               std::byte* memory, int worker, int chunk) const {
  const RunPiece run_piece = method_.choose(args.kv.dtype);
  const Scratch scratch = space.scratch(memory, worker);
  for (int side : {0, 1}) space.partial(memory, chunk, side).used = false;
  schedule.for_pieces(chunk, [&](const Piece& piece) {
    const bool whole = piece.first() && piece.last();
    Partial& partial = whole ? *scratch.whole : space.partial(memory, chunk, piece.first() ? 1 : 0);
    run_piece(args, space, scratch, piece, partial);
    if (whole) return method_.write_out(args, piece.tile, partial, space.stride);
    partial.piece = piece;
    partial.used = true;
  });
}

// Merges the tiles that were cut, one worker per tile: a single worker would take as long to merge those of a prompt as
// all workers for the rest of the call.
void FlashAttention::join(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
                          const Executor& executor) const {
  const int group = args.heads / args.kv.kv_heads;
  int64_t vectors = 0;
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
    const Partial& first = space.partial(executor.workspace, chunk, 1);
    if (first.used) vectors += int64_t{first.piece.tile.rows} * first.piece.tile.kv_heads * group;
  }
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) join_tile(args, space, executor.workspace, static_cast<int>(i));
  };
  if (vectors < kVectorsWorthARegion) return some(0, schedule.chunks());
  executor.pool->parallel_for(schedule.chunks(), 1, some);
}

// Merges the tile whose first part is the chunk's side 1, if any; its other parts are side 0 of later chunks.
void FlashAttention::join_tile(const Args& args, const AttentionWorkspace& space, std::byte* memory, int chunk) const {
  Partial& first = space.partial(memory, chunk, 1);
  if (!first.used) return;
  const QueryTile& tile = first.piece.tile;
  const int64_t vectors = int64_t{tile.rows} * tile.kv_heads * (args.heads / args.kv.kv_heads);
  for (bool last = false; !last;) {
    const Partial& part = space.partial(memory, ++chunk, 0);
    if (!part.used) continue;
    method_.merge(first, part, vectors, space.stride);
    last = part.piece.last();
  }
  method_.write_out(args, tile, first, space.stride);
}

}  // namespace millrace
