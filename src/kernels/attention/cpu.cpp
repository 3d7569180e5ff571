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
#include "kernels/attention/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

struct RowPointers {
  const std::byte* keys[kKvTile];
  const std::byte* values[kKvTile];
};

// Where positions [begin, begin + n) lie; the last one is repeated up to the next multiple of four.
void find_rows(const AttentionArgs& args, const Piece& piece, int begin, int n, RowPointers& rows) {
  const KvLayer& kv = args.kv;
  const size_t bytes = kv.row_bytes();
  for (int t = 0; t < n;) {
    const int position = begin + t;
    int slot = position % kv.block_size;
    size_t at = kv.offset(piece.tile.sequence->pages[position / kv.block_size], piece.tile.kv_head, slot);
    for (; t < n && slot < kv.block_size; ++t, ++slot, at += bytes) {
      rows.keys[t] = kv.keys + at;
      rows.values[t] = kv.values + at;
    }
  }
  for (int t = n; t % 4 != 0; ++t) rows.keys[t] = rows.keys[n - 1];
}

template <DType dtype, Softmax variant>
class PieceRunner {
 public:
  PieceRunner(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch)
      : args_(args),
        scratch_(scratch),
        dim_(args.kv.head_dim),
        stride_(space.stride),
        group_(args.heads / args.kv.kv_heads) {}

  // False: the variant's assumptions do not hold for these scores.
  bool run(const Piece& piece, Partial& partial) const {
    prepare(piece, partial);
    RowPointers rows;
    for (int begin = piece.begin; begin < piece.end; begin += kKvTile) {
      const int n = std::min(kKvTile, piece.end - begin);
      find_rows(args_, piece, begin, n, rows);
      for (int row = 0; row < piece.tile.rows; ++row) {
        if (!run_row(piece.tile, row, begin, n, rows, partial)) return false;
      }
    }
    return variant != Softmax::Unified || totals_are_sound(piece.tile, partial);
  }

 private:
  void prepare(const Piece& piece, Partial& partial) const {
    const float scale = args_.softcap > 0 ? args_.scale : args_.scale * kLog2E;
    for (int row = 0; row < piece.tile.rows; ++row) {
      const float* q = args_.q.row<float>(piece.tile.sequence->first_row + piece.tile.first + row);
      for (int g = 0; g < group_; ++g) {
        const int head = piece.tile.kv_head * group_ + g, vector = row * group_ + g;
        float* to = scratch_.q + vector * stride_;
        for (int64_t i = 0; i < stride_; ++i) to[i] = i < dim_ ? q[head * dim_ + i] * scale : 0.0f;
        partial.states[vector] = {};
        if (variant == Softmax::Unified && args_.phi != nullptr)
          partial.states[vector].maximum = args_.phi[head] * kLog2E;
        std::fill_n(partial.sums + vector * stride_, stride_, 0.0f);
      }
    }
  }

  // The part of positions [begin, begin + n) that the row sees.
  bool run_row(const QueryTile& tile, int row, int begin, int n, const RowPointers& rows, Partial& partial) const {
    const int position = tile.sequence->past + tile.first + row;
    const int low = args_.window > 0 ? std::max(0, position - args_.window + 1 - begin) : 0;
    const int high = std::min(n, position + 1 - begin);
    for (int g = 0; low < high && g < group_; g += 4) {
      const int vector = row * group_ + g;
      const bool good = run_heads(std::min(4, group_ - g), rows, low, high, scratch_.q + vector * stride_,
                                  partial.states + vector, partial.sums + vector * stride_);
      if (!good) return false;
    }
    return true;
  }

  bool run_heads(int heads, const RowPointers& rows, int low, int high, const float* q, SoftmaxState* states,
                 float* sums) const {
    switch (heads) {
      case 1:
        return run_heads<1>(rows, low, high, q, states, sums);
      case 2:
        return run_heads<2>(rows, low, high, q, states, sums);
      case 3:
        return run_heads<3>(rows, low, high, q, states, sums);
      default:
        return run_heads<4>(rows, low, high, q, states, sums);
    }
  }

  template <int heads>
  bool run_heads(const RowPointers& rows, int low, int high, const float* q, SoftmaxState* states, float* sums) const {
    const std::byte* keys[kKvTile];
    const int n = high - low;
    for (int t = 0; t < (n + 3) / 4 * 4; ++t) keys[t] = rows.keys[low + std::min(t, n - 1)];
    score_tile<dtype, heads>(keys, n, q, dim_, stride_, scratch_.scores);
    for (int h = 0; h < heads; ++h) {
      float* scores = scratch_.scores + h * kKvTile;
      limit_scores(scores, n, args_.softcap);
      if (!weigh<variant>(scores, n, states[h], sums + h * stride_, stride_)) return false;
    }
    add_tile<dtype, heads>(rows.values + low, n, scratch_.scores, dim_, stride_, sums);
    return true;
  }

  // A maximum far above all scores leaves a total that has lost its digits.
  bool totals_are_sound(const QueryTile& tile, const Partial& partial) const {
    for (int vector = 0; vector < tile.rows * group_; ++vector) {
      const SoftmaxState& state = partial.states[vector];
      if (state.maximum != kNoScore && !(state.total > std::exp2(-kUnifiedRange))) return false;
    }
    return true;
  }

  const AttentionArgs& args_;
  const Scratch& scratch_;
  const int64_t dim_, stride_;
  const int group_;
};

template <DType dtype, Softmax variant>
void run_piece(const AttentionArgs& args, const AttentionWorkspace& space, const Scratch& scratch, const Piece& piece,
               Partial& partial) {
  if (PieceRunner<dtype, variant>(args, space, scratch).run(piece, partial)) return;
  PieceRunner<dtype, Softmax::Online>(args, space, scratch).run(piece, partial);
}

using RunPiece = void (*)(const AttentionArgs&, const AttentionWorkspace&, const Scratch&, const Piece&, Partial&);

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
      const float inverse = 1 / partial.states[vector].total;
      int64_t i = 0;
      for (; i + kLanes <= dim; i += kLanes) store(hn::Mul(load(sums + i), broadcast(inverse)), out + i);
      for (; i < dim; ++i) out[i] = sums[i] * inverse;
    }
  }
}

// Adds what a later chunk found to `into`, at the larger of the two maxima.
void merge(Partial& into, const Partial& from, int vectors, int64_t stride) {
  for (int vector = 0; vector < vectors; ++vector) {
    SoftmaxState &a = into.states[vector], b = from.states[vector];
    const float maximum = std::max(a.maximum, b.maximum);
    const float keep = std::exp2(a.maximum - maximum), add = std::exp2(b.maximum - maximum);
    a = {maximum, a.total * keep + b.total * add};
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
    const Scratch scratch = space.scratch(memory, worker);
    for (int side : {0, 1}) space.partial(memory, chunk, side).used = false;
    schedule.for_pieces(chunk, [&](const Piece& piece) {
      const bool whole = piece.first() && piece.last();
      Partial& partial = whole ? *scratch.whole : space.partial(memory, chunk, piece.first() ? 1 : 0);
      run_piece(args, space, scratch, piece, partial);
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
