// Materialised latent attention in f32. A worker takes a head and a block of query rows. It expands each tile of 64
// latent rows to keys and values of that head once and uses them for the whole block, as many_queries-inl.h does with
// cached ones.
#include <algorithm>
#include <cstring>

#include "kernels/latent_prompt/absorbed.h"
#include "kernels/latent_prompt/space.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/latent_prompt/cpu.cpp"
#include <hwy/foreach_target.h>

#include "base/thread_pool.h"
#include "kernels/attention/finish-inl.h"
#include "kernels/attention/many_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

using Transpose = void (*)(const std::byte* const* rows, int n, int64_t dim, int64_t stride, float* wide, float* out);

Transpose choose_transpose(DType dtype) {
  if (dtype == kFp8) return transpose_keys<kFp8>;
  switch (dtype) {
    case DType::F16:
      return transpose_keys<DType::F16>;
    case DType::BF16:
      return transpose_keys<DType::BF16>;
    case DType::Q8_0:
      return transpose_keys<DType::Q8_0>;
    default:
      return transpose_keys<DType::F32>;
  }
}

// One head of a chunk on one worker.
class HeadOfChunk {
 public:
  HeadOfChunk(const LatentPromptOp::Args& args, const AttentionArgs& materialised, const HeadSpace& space, int head,
              std::byte* memory)
      : args_(args),
        materialised_(materialised),
        slice_(materialised.sequences.front()),
        space_(space),
        head_(head),
        latent_(args.attention.kv.value_dim),
        rotary_(args.attention.kv.key_dim - args.attention.kv.value_dim),
        transpose_(choose_transpose(args.attention.kv.dtype)),
        scratch_(space.attention.scratch(memory, 0)) {
    keys_ = reinterpret_cast<float*>(memory + HeadSpace::round_up64(space.attention.scratch_bytes()));
    values_ = keys_ + space.keys;
    tile_ = values_ + space.values;
    wide_ = tile_ + space.tile;
    expansion_ = reinterpret_cast<std::byte*>(wide_ + space.wide);
  }

  void read_matrices(const HeadMatrix& keys, const HeadMatrix& values) const {
    std::fill_n(keys_, space_.keys + space_.values, 0.0f);
    keys.read(head_, /*transposed=*/false, keys_, space_.key_stride, expansion_);
    values.read(head_, /*transposed=*/true, values_, space_.value_stride, expansion_);
  }

  // Rows [first, last) of the chunk.
  void attend(int first, int last) {
    const int parts = static_cast<int>(ceil_div(last - first, kQueryTile));
    int begin = 1 << 30, end = 0;
    for (int i = 0; i < parts; ++i) {
      const QueryTile tile = part(first, last, i);
      begin = std::min(begin, tile.begin);
      end = std::max(end, tile.end);
      start(i, tile);
    }
    for (int from = begin, to; from < end; from = to) {
      to = std::min(end, (from / kKvTile + 1) * kKvTile);
      expand(from, to);
      for (int i = 0; i < parts; ++i) add(i, part(first, last, i), from, to);
    }
    for (int i = 0; i < parts; ++i) write_out(materialised_, part(first, last, i), partial(i), space_.attention.stride);
  }

 private:
  using Queries = ManyQueries<DType::F32, Softmax::Lazy>;

  QueryTile part(int first, int last, int i) const {
    const int row = first + i * kQueryTile;
    QueryTile tile{&slice_, head_, 1, row, std::min(kQueryTile, last - row)};
    tile.begin = seen_by(materialised_, slice_, row).begin;
    tile.end = seen_by(materialised_, slice_, row + tile.rows - 1).end;
    return tile;
  }

  // Each part of the block has its own state and queries; keys, values and scores are shared.
  Partial partial(int i) const {
    Partial own = *scratch_.whole;
    own.maxima += i * kQueryTile;
    own.totals += i * kQueryTile;
    own.sums += i * kQueryTile * space_.attention.stride;
    return own;
  }
  Scratch scratch(int i) const {
    Scratch own = scratch_;
    own.q += i * kQueryTile * space_.attention.stride;
    return own;
  }

  void start(int i, const QueryTile& tile) const {
    const TileShape shape(materialised_, space_.attention, tile);
    const Scratch own = scratch(i);
    const Queries queries(shape, own);
    Partial state = partial(i);
    queries.start(state);
    const int64_t vectors = queries.padded_vectors(), plain = args_.plain_dim;
    std::fill_n(own.q, shape.dim * vectors, 0.0f);
    for (int row = 0; row < tile.rows; ++row) {
      const int64_t at = tile.batch_row(row);
      const float* q = args_.plain.row<float>(at) + head_ * args_.plain_stride;
      const float* rotated = args_.attention.q.row<float>(at) + head_ * (latent_ + rotary_) + latent_;
      for (int64_t e = 0; e < plain; ++e) own.q[e * vectors + row] = q[e] * shape.query_scale;
      for (int64_t e = 0; e < rotary_; ++e) own.q[(plain + e) * vectors + row] = rotated[e] * shape.query_scale;
    }
  }

  // Keys [element][position] and values [position][element] of positions [begin, end).
  void expand(int begin, int end) {
    const KvLayer& kv = args_.attention.kv;
    const int n = end - begin;
    int t = 0;
    for (int at = begin; at < end; ++at)
      rows_[t++] =
          kv.keys + kv.key_offset(slice_.pages[static_cast<size_t>(at / kv.block_size)], 0, at % kv.block_size);
    for (; t % 4 != 0; ++t) rows_[t] = rows_[t - 1];
    transpose_(rows_, n, kv.key_dim, space_.row_stride, wide_, tile_);
    multiply<false>(keys_, space_.key_stride, tile_, kKvTile, latent_, args_.plain_dim, padded_to_lanes(n),
                    scratch_.keys, kKvTile);
    std::memcpy(scratch_.keys + args_.plain_dim * kKvTile, tile_ + latent_ * kKvTile,
                static_cast<size_t>(rotary_ * kKvTile) * sizeof(float));
    multiply<false>(tile_, kKvTile, values_, space_.value_stride, latent_, n, padded_to_lanes(args_.value_dim),
                    scratch_.values, space_.attention.stride);
  }

  void add(int i, const QueryTile& tile, int begin, int end) const {
    end = std::min(end, tile.end);
    if (end <= begin || end <= tile.begin) return;
    const TileShape shape(materialised_, space_.attention, tile);
    const Scratch own = scratch(i);
    const Queries queries(shape, own);
    Partial state = partial(i);
    queries.weigh(begin, end - begin, state);
    queries.add(end - begin, args_.value_dim, state);
  }

  const LatentPromptOp::Args& args_;
  const AttentionArgs& materialised_;  // of keys and values of all heads
  const SequenceSlice& slice_;
  const HeadSpace& space_;
  const int head_;
  const int64_t latent_, rotary_;
  const Transpose transpose_;
  const Scratch scratch_;
  float *keys_, *values_;  // [latent, key_stride], [latent, value_stride]
  float *tile_, *wide_;    // [row_stride, kKvTile]: latent rows, transposed
  std::byte* expansion_;
  const std::byte* rows_[kKvTile];
};

class Materialised final : public Kernel<LatentPromptOp> {
 public:
  std::string_view name() const override { return "materialised_" MR_TARGET_NAME; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim);
  }

  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const RowBlocks blocks(p.rows, p.heads, hardware.threads);
    // Positions that are expanded for a head. Reading its matrices takes as long as expanding some more.
    const double before = double(p.context - p.rows), matrices = double(p.latent_dim + p.plain_dim) / 8;
    const double expanded = double(blocks.count) * (before + matrices) + double(p.rows) * double(blocks.count + 1) / 2;
    const double products = double(p.rows) * p.seen() * (p.query_dim() + p.value_dim) +
                            expanded * p.latent_dim * (p.plain_dim + p.value_dim);
    const int64_t units = p.heads * blocks.count, rounds = ceil_div(units, hardware.threads);
    const double busy = double(units) / double(rounds * hardware.threads);
    constexpr double kShareOfPeak = 0.5;  // as of attention in f32
    return (hardware.threads > 1 ? hardware.ceilings.region_us : 0) +
           2 * p.heads * products / (1e3 * kShareOfPeak * busy * hardware.ceilings.f32_gflops);
  }

  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    const HeadSpace space(p.plain_dim, p.rotary_dim, p.value_dim, p.latent_dim);
    return space.bytes() * static_cast<size_t>(hardware.threads);
  }

  void run(const Args& args, const Executor& executor) const override {
    const KvLayer& kv = args.attention.kv;
    const int rotary = kv.key_dim - kv.value_dim, heads = args.attention.heads;
    AttentionArgs materialised = args.attention;
    materialised.kv.kv_heads = heads;
    materialised.kv.key_dim = args.plain_dim + rotary;
    materialised.kv.value_dim = args.value_dim;
    materialised.kv.latent = false;
    const HeadMatrix keys(*args.keys, *executor.hardware), values(*args.values, *executor.hardware);
    const HeadSpace space(args.plain_dim, rotary, args.value_dim, kv.value_dim);
    const int rows = args.attention.sequences.front().rows;
    const RowBlocks blocks(rows, heads, executor.pool->size());
    executor.pool->share(heads * blocks.count, 1, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        HeadOfChunk head(args, materialised, space, static_cast<int>(i / blocks.count),
                         executor.workspace + static_cast<size_t>(worker) * space.bytes());
        head.read_matrices(keys, values);
        const int64_t first = i % blocks.count * blocks.rows;
        head.attend(static_cast<int>(first), static_cast<int>(std::min<int64_t>(first + blocks.rows, rows)));
      }
    });
  }
};

}  // namespace

const Kernel<LatentPromptOp>* materialised_kernel() {
  static const Materialised kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<LatentPromptOp> LatentPromptOp::cpu() {
  static const AbsorbedForm absorbed(AttentionOp::cpu());
  return {MR_EACH_TARGET(materialised_kernel), &absorbed};
}

}  // namespace millrace
#endif
