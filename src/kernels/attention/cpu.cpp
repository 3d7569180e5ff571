#include <array>
#include <atomic>
#include <cmath>

#include "kernels/attention/schedule.h"
#include "kernels/attention/workspace.h"
#include "kernels/cpu_lists.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/attention/few_queries-inl.h"
#include "kernels/attention/many_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// One row under few heads walks over the keys as they are stored; a block of query vectors is worth converting them.
constexpr int kFewQueries = 8;

template <DType dtype, Softmax variant>
bool try_piece(const TileShape& shape, const Scratch& scratch, const Piece& piece, Partial& partial) {
  if (piece.tile.rows == 1 && shape.group <= kFewQueries) {
    return FewQueries<dtype, variant>(shape, scratch).run(piece, partial);
  }
  return ManyQueries<dtype, variant>(shape, scratch).run(piece, partial);
}

template <DType dtype, Softmax variant>
void run_piece(const TileShape& shape, const Scratch& scratch, const Piece& piece, Partial& partial) {
  if (!try_piece<dtype, variant>(shape, scratch, piece, partial)) {
    try_piece<dtype, Softmax::Online>(shape, scratch, piece, partial);
  }
}

using RunPiece = void (*)(const TileShape&, const Scratch&, const Piece&, Partial&);

template <Softmax variant>
RunPiece choose(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return run_piece<DType::F16, variant>;
    case DType::BF16:
      return run_piece<DType::BF16, variant>;
    case DType::Q8_0:
      return run_piece<DType::Q8_0, variant>;
    default:
      return run_piece<DType::F32, variant>;
  }
}

void write_out(const AttentionArgs& args, const QueryTile& tile, const Partial& partial, int64_t stride) {
  const int group = args.heads / args.kv.kv_heads;
  const int64_t dim = args.kv.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    float* out = args.out.row<float>(tile.sequence->first_row + tile.first + row) + tile.kv_head * group * dim;
    for (int g = 0; g < group; ++g, out += dim) {
      const int vector = row * group + g;
      const float* sums = partial.sums + vector * stride;
      const float inverse = 1 / partial.totals[vector];
      int64_t i = 0;
      for (; i + kLanes <= dim; i += kLanes) store(hn::Mul(load(sums + i), broadcast(inverse)), out + i);
      for (; i < dim; ++i) out[i] = sums[i] * inverse;
    }
  }
}

// Adds what a later chunk found to `into`, at the larger of the two maxima.
void merge(Partial& into, const Partial& from, int vectors, int64_t stride) {
  for (int vector = 0; vector < vectors; ++vector) {
    const float maximum = std::max(into.maxima[vector], from.maxima[vector]);
    const float keep = std::exp2(into.maxima[vector] - maximum), add = std::exp2(from.maxima[vector] - maximum);
    into.maxima[vector] = maximum;
    into.totals[vector] = into.totals[vector] * keep + from.totals[vector] * add;
    float* sums = into.sums + vector * stride;
    const float* others = from.sums + vector * stride;
    for (int64_t i = 0; i < stride; i += kLanes) {
      store(hn::MulAdd(load(others + i), broadcast(add), hn::Mul(load(sums + i), broadcast(keep))), sums + i);
    }
  }
}

template <Softmax variant>
class FlashAttention : public AttentionKernel {
 public:
  std::string_view name() const override {
    constexpr std::array<std::string_view, 3> kNames{"flash_online_" MR_TARGET_NAME, "flash_lazy_" MR_TARGET_NAME,
                                                     "flash_unified_" MR_TARGET_NAME};
    return kNames[static_cast<int>(variant)];
  }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && is_kv_dtype(p.kv, p.head_dim);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double seen = static_cast<double>(p.window > 0 ? std::min<int64_t>(p.window, p.context) : p.context);
    const double share = p.rows > p.sequences && p.window == 0 ? 0.5 : 1;  // rows of a chunk see half of it on average
    const double flops = 4.0 * static_cast<double>(p.rows) * seen * share * p.heads * p.head_dim;
    const double bytes =
        2.0 * static_cast<double>(p.sequences) * seen * p.kv_heads * static_cast<double>(row_bytes(p.kv, p.head_dim));
    return hardware.ceilings.region_us +
           std::max(flops / (0.5e3 * hardware.ceilings.f32_gflops), bytes / (1e3 * hardware.ceilings.read_gbs));
  }
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    return AttentionWorkspace(p.heads, p.kv_heads, p.head_dim, hardware.threads).bytes();
  }

  void run(const Args& args, const Executor& executor) const override {
    ThreadPool& pool = *executor.pool;
    const AttentionSchedule schedule(args, pool.size());
    const AttentionWorkspace space(args.heads, args.kv.kv_heads, args.kv.head_dim, pool.size());
    if (schedule.chunks() == 1) return run_chunk(args, schedule, space, executor.workspace, 0, 0);
    std::atomic<int> next{0};
    pool.run([&](int worker) {
      for (int chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < schedule.chunks();) {
        run_chunk(args, schedule, space, executor.workspace, worker, chunk);
      }
    });
    join(args, schedule, space, executor.workspace);
  }

 private:
  static void run_chunk(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
                        std::byte* memory, int worker, int chunk) {
    const RunPiece run_piece = choose<variant>(args.kv.dtype);
    const TileShape shape(args, space);
    const Scratch scratch = space.scratch(memory, worker);
    for (int side : {0, 1}) space.partial(memory, chunk, side).used = false;
    schedule.for_pieces(chunk, [&](const Piece& piece) {
      const bool whole = piece.first() && piece.last();
      Partial& partial = whole ? *scratch.whole : space.partial(memory, chunk, piece.first() ? 1 : 0);
      run_piece(shape, scratch, piece, partial);
      if (whole) return write_out(args, piece.tile, partial, space.stride);
      partial.piece = piece;
      partial.used = true;
    });
  }

  // Adds up the tiles that were cut: the first part lies on side 1 of its chunk, the others on side 0 of later ones.
  static void join(const Args& args, const AttentionSchedule& schedule, const AttentionWorkspace& space,
                   std::byte* memory) {
    const int group = args.heads / args.kv.kv_heads;
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      Partial& first = space.partial(memory, chunk, 1);
      if (!first.used) continue;
      const QueryTile& tile = first.piece.tile;
      for (bool last = false; !last;) {
        const Partial& part = space.partial(memory, ++chunk, 0);
        if (!part.used) continue;
        merge(first, part, tile.rows * group, space.stride);
        last = part.piece.last();
      }
      write_out(args, tile, first, space.stride);
      --chunk;  // the tile's last chunk may begin another one
    }
  }
};

}  // namespace

template <Softmax variant>
const Kernel<AttentionOp>* flash_kernel() {
  static const FlashAttention<variant> kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<AttentionOp> cpu_attention_kernels() {
  return {MR_EACH_TARGET(flash_kernel<Softmax::Lazy>), MR_EACH_TARGET(flash_kernel<Softmax::Online>),
          MR_EACH_TARGET(flash_kernel<Softmax::Unified>), reference_attention()};
}

}  // namespace millrace
#endif
