// Decode attention: each block streams its range of the line of work (split.h), each warp with a pipeline of its own.
//
// A warp takes every kWarps-th unit of 16 positions; the query rows that share a KV head fill the 16 rows of a
// tensor-core tile, so that keys and values are read once. No barrier stands in the stream: warps meet only where a
// pair ends, merge their sums in shared memory, and write the result, or a partial one that the last block of the pair
// to arrive combines.
#pragma once

#include "kernels/attention/cuda/even_cut.h"
#include "kernels/attention/cuda/launch.h"
#include "kernels/attention/cuda/mma.cuh"
#include "kernels/attention/cuda/rows.cuh"
#include "kernels/attention/cuda/split.h"
#include "kernels/cuda/stamps.cuh"

namespace millrace {

struct DecodeParams {
  CudaAttentionArgs args;
  int sequences = 0, kv_heads = 0, group = 0, block_size = 0;
  int block_shift = -1;          // block_size is this power of two; -1: it is none, and pages are found by dividing
  int pairs_per_sequence = 0;    // at most
  int most_tiles = 1;            // of a KV head, in any sequence
  int ranks = 1;                 // blocks of a cluster: a power of two
  bool deep = false;             // twice the stages, where a multiprocessor has one block only
  int held_stages = 0;           // that have memory: no warp has more units than that where they are fewer
  float* partials = nullptr;     // [blocks][2][kTileRows][head_dim]
  float2* summaries = nullptr;   // [blocks][2][kTileRows]: maximum, total
  unsigned* counters = nullptr;  // [sequences][pairs_per_sequence]: zero before and after a launch
  EvenCut cut;                   // of blocks that stay
  Divisor by_pairs_per_sequence;
  Stamps stamps;

  __device__ int page_of(int position) const {
    return block_shift >= 0 ? position >> block_shift : position / block_size;
  }
};

// A block of eight warps has a multiprocessor for itself, where there are too few blocks for two: one warp on each of
// its schedulers would wait for itself most of the time. Only for clusters, whose sums meet in the stages.
inline constexpr int kUsualWarps = 4, kWideWarps = 8;

template <int kHeadDim, int kWarpCount = kUsualWarps>
struct DecodeConfig {
  static constexpr int kDim = kHeadDim, kWarps = kWarpCount, kThreads = kWarps * 32;
  static constexpr bool kWide = kWarps > kUsualWarps;
  static constexpr int kBlocksPerSm = kDim <= 128 && !kWide ? 2 : 1;
  static constexpr int kUnitBytes = kUnit * kDim * 2;
  static constexpr int kStages = kDim > 128 ? 2 : kDim > 96 ? 3 : kDim > 64 ? 4 : 6;
  static constexpr bool kSharedQueries = kDim > 128;       // registers would not hold them beside the sums
  static constexpr bool kLetsNextStartLate = kDim == 128;  // worth half a percent of a layer; heads of 64 lose that
  // Queries that are not kept there share the space where warps meet.
  static constexpr int kQueryBytes = kSharedQueries ? kTileRows * kDim * 2 : 0;
  static constexpr int kMergeRows = 8;  // rows merged at a time
  static constexpr bool kMergePermutes = kDim % 32 == 0;
  static constexpr int kMergeStride = kMergePermutes ? kDim : kDim + 8;  // floats
  // Of a cluster: sums, largest score and total of every four columns, from all blocks.
  static constexpr int kReceived = (kTileRows * kDim / 4 + kThreads - 1) / kThreads * kThreads;
  static constexpr int kReceivedFloats = kReceived * 6;
  static constexpr int kMergeFloats = kWide ? kReceivedFloats : kWarps * kMergeRows * kMergeStride;
  static_assert(kMergeFloats >= kReceivedFloats);
  static_assert(kSharedQueries || kMergeFloats * 4 >= (kTileRows + 2) * kDim * 2);
  static constexpr int kSharedBytes =
      kWarps * kStages * 2 * kUnitBytes + kMergeFloats * 4 + kWarps * kTileRows * 8 + 16 + kQueryBytes;
  static_assert((kSharedBytes + 1024) * kBlocksPerSm <= 228 * 1024);
  static constexpr int kDeepBytes = kSharedBytes + kWarps * kStages * 2 * kUnitBytes;
  static constexpr bool kHasDeep = kDeepBytes + 1024 <= 228 * 1024;

  // Neighbouring rows keep a column in different banks: by padding, or by permuting eights where that saves the space.
  __device__ static int merge_at(int row, int column) {
    return row * kMergeStride + (kMergePermutes ? column ^ (row % 4 * 8) : column);
  }
};

// Where a pair's rows are and what each of them sees.
struct Segment {
  int sequence = 0, kv_head = 0, first_row_of_tile = 0;  // the tile's first index into rows * group
  int rows = 0;                                          // of the tile that are used
  int begin = 0, end = 0;                                // units, absolute
  int pair_begin = 0, pair_units = 0;                    // on the line
  bool from_start = false, whole = false;                // does it begin, does it fill its pair
  DeviceSlice slice;
};

// Walks a range of the line, segment by segment.
class Walk {
 public:
  __device__ Walk(const DecodeParams& p, int begin, int end, int sequence, int sequence_begin)
      : p_(&p), point_(begin), end_(end), sequence_(sequence), base_(sequence_begin) {
    enter();
  }
  __device__ bool done() const { return point_ >= end_; }

  __device__ Segment segment() const {
    const int pair = (point_ - base_) / work_.units;
    const int tiles = work_.pairs / p_->kv_heads;
    Segment s;
    s.sequence = sequence_;
    s.slice = slice_;
    s.kv_head = pair / tiles;
    s.first_row_of_tile = pair % tiles * kTileRows;
    s.rows = min(kTileRows, slice_.rows * p_->group - s.first_row_of_tile);
    s.pair_begin = base_ + pair * work_.units;
    s.pair_units = work_.units;
    const int begin = point_ - s.pair_begin, end = min(work_.units, begin + end_ - point_);
    s.begin = work_.first_unit + begin;
    s.end = work_.first_unit + end;
    s.from_start = begin == 0;
    s.whole = begin == 0 && end == work_.units;
    return s;
  }
  __device__ void next(const Segment& s) {
    point_ += s.end - s.begin;
    if (!done() && point_ == base_ + work_.length()) {
      base_ = point_;
      ++sequence_;
      enter();
    }
  }

 private:
  __device__ void enter() {
    while (true) {
      slice_ = p_->args.slices[sequence_];
      work_ = sequence_work(slice_.rows, slice_.past, p_->args.window, p_->kv_heads, p_->group);
      if (work_.length() > 0) return;
      ++sequence_;
    }
  }

  const DecodeParams* p_;
  int point_, end_, sequence_, base_;
  DeviceSlice slice_;
  SequenceWork work_;
};

// The same interface for a piece of one pair, which is known from the start.
class OnePiece {
 public:
  __device__ explicit OnePiece(const Segment& segment) : segment_(segment), done_(segment.begin >= segment.end) {}
  __device__ bool done() const { return done_; }
  __device__ const Segment& segment() const { return segment_; }
  __device__ void next(const Segment&) { done_ = true; }

 private:
  Segment segment_;
  bool done_;
};

// The work of each sequence; a lane keeps that of its own place, so that small batches are read once.
class BatchWork {
 public:
  __device__ explicit BatchWork(const DecodeParams& p) : p_(p), lane_(static_cast<int>(threadIdx.x) % 32) {
    if (lane_ < p.sequences) held_ = load(lane_);
  }
  __device__ SequenceWork of(int i) const { return i == lane_ ? held_ : load(i); }

 private:
  __device__ SequenceWork load(int i) const {
    const DeviceSlice s = p_.args.slices[i];
    return sequence_work(s.rows, s.past, p_.args.window, p_.kv_heads, p_.group);
  }
  const DecodeParams& p_;
  int lane_;
  SequenceWork held_;
};

template <class Config>
__device__ int stage_count(const DecodeParams& p) {
  return p.deep ? 2 * Config::kStages : Config::kStages;
}

// The copies of one warp, as many units ahead of its arithmetic as there are stages.
template <class T, class Config, class Walk>
class UnitLoader {
  static constexpr int kDim = Config::kDim;
  using Rows = SwizzledRows<kDim>;

 public:
  __device__ UnitLoader(const DecodeParams& p, const Walk& walk, uint32_t stages)
      : p_(p), walk_(walk), stages_(stages), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32) {
#pragma unroll
    for (int i = 0; i < kPeriod; ++i) {
      places_[i] = Rows::offset((i * 32 + lane_) / Rows::kPieces, (i * 32 + lane_) % Rows::kPieces);
    }
    if (!walk_.done()) enter();
  }

  __device__ void restart(const Walk& walk) {
    walk_ = walk;
    stage_ = 0;
    if (!walk_.done()) enter();
  }

  // Issues what no kernel of this step writes, as many units as there are stages; says how many. It stands before all
  // else that a block does: no case that is rare.
  __device__ int issue_old() {
    int count = 0;
    while (count < stage_count<Config>(p_) && !walk_.done() && unit_ < segment_.end &&
           (unit_ + 1) * kUnit <= segment_.slice.past && unit_ * kUnit >= seen_from_) {
      issue_whole();
      ++count;
    }
    return count;
  }

  // Two groups of copies, keys and values; empty ones past the end, so that counting groups stays simple.
  __device__ void issue() {
    while (!walk_.done() && unit_ >= segment_.end) {
      walk_.next(segment_);
      if (!walk_.done()) enter();
    }
    if (!walk_.done() && taken_ == 32) fetch_rows();
    const int position = unit_ * kUnit;
    if (walk_.done()) {
      commit_copies();
      commit_copies();
      next_stage();
    } else if (position >= seen_from_ && position + kUnit <= seen_until_) {
      issue_whole();
    } else {
      issue_unit([&](uint32_t to, const T* from) { copy_seen(to, from, position); });
    }
  }

 private:
  __device__ void enter() {
    segment_ = walk_.segment();
    unit_ = segment_.begin + warp_;
    const DeviceSlice& s = segment_.slice;
    seen_until_ = s.past + s.rows;
    seen_from_ = p_.args.window > 0 ? max(0, s.past - p_.args.window + 1) : 0;
    fetch_rows();
  }

  // Lane i keeps where the i-th unit from here on begins, in rows of all pages. The division is by a size that is not
  // known here, so that lanes do it, once for many units.
  __device__ void fetch_rows() {
    const int unit = unit_ + lane_ * Config::kWarps, page = p_.page_of(unit * kUnit);
    row_ = 0;
    if (unit < segment_.end) {
      const int place = p_.args.tables[segment_.sequence * p_.args.table_pitch + page];
      row_ = (place * p_.kv_heads + segment_.kv_head) * p_.block_size + unit * kUnit - page * p_.block_size;
    }
    taken_ = 0;
  }

  __device__ void next_stage() { stage_ = stage_ + 1 == stage_count<Config>(p_) ? 0 : stage_ + 1; }

  template <class Copy>
  __device__ void issue_unit(Copy copy) {
    const int64_t at = static_cast<int64_t>(__shfl_sync(~0u, row_, taken_)) * kDim;
    const uint32_t to = stages_ + stage_ * 2 * Config::kUnitBytes;
    copy(to, static_cast<const T*>(p_.args.keys) + at);
    commit_copies();
    copy(to + Config::kUnitBytes, static_cast<const T*>(p_.args.values) + at);
    commit_copies();
    ++taken_;
    unit_ += Config::kWarps;
    next_stage();
  }
  __device__ void issue_whole() {
    issue_unit([&](uint32_t to, const T* from) { copy_whole(to, from); });
  }

  // Rows that nobody sees may hold anything: they become zeros, since even a weight of zero does not silence a NaN.
  __device__ void copy_seen(uint32_t to, const T* from, int position) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int index = i * 32 + lane_;
      const int row = index / Rows::kPieces, piece = index % Rows::kPieces;
      const bool seen = position + row < seen_until_ && position + row >= seen_from_;
      copy_async(to + Rows::offset(row, piece), from + (seen ? row * kDim + piece * 8 : 0), seen);
    }
  }

  // A unit is one run of bytes. Where its pieces go is the same again eight rows further on.
  __device__ void copy_whole(uint32_t to, const T* from) const {
    from += lane_ * 8;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      copy_async_once(to + places_[i % kPeriod] + i / kPeriod * 8 * Rows::kRowBytes, from + i * 32 * 8);
    }
  }

  static constexpr int kCopies = kUnit * Rows::kPieces / 32;  // of a lane, for keys or values
  static constexpr int kPeriod = Rows::kPieces % 4 == 0 ? Rows::kPieces / 4 : kCopies;
  const DecodeParams& p_;
  Walk walk_;
  Segment segment_;
  uint32_t stages_;
  uint32_t places_[kPeriod];
  int lane_, warp_, stage_ = 0;
  int unit_ = 0, row_ = 0, taken_ = 0, seen_until_ = 0, seen_from_ = 0;
};

constexpr int kMostFreshDim = 128;  // half a warp has all of a key

// Which row of its slice an index of a tile's rows is, and which of the query heads that share the KV head. Most slices
// have one row, and a division takes long.
struct RowAndHead {
  int row, head;
  __device__ RowAndHead(const DecodeParams& p, const Segment& s, int index) : row(0), head(index) {
    if (s.slice.rows > 1) row = index / p.group, head = index % p.group;
  }
};

// In log2; bf16 has the range of f32.
template <class T>
struct UnifiedRange {
  static constexpr float kAbove = kUnifiedRange, kBelow = kUnifiedRange;
};
template <>
struct UnifiedRange<__half> {
  static constexpr float kAbove = kUnifiedAboveHalf, kBelow = kUnifiedBelowHalf;
};

// What turns products into weights: scale, softcap, mask and one of the softmax variants.
template <class T, class Config>
class WarpAttention {
  static constexpr int kDim = Config::kDim;
  using Rows = SwizzledRows<kDim>;

 public:
  __device__ WarpAttention(const DecodeParams& p, const Segment& s) : p_(p) {
    const int lane = threadIdx.x % 32;
    key_row_ = lane % 8 + lane / 16 * 8;
    key_piece_ = lane / 8 % 2;
    value_row_ = lane % 16;
    value_piece_ = lane / 16;
    column_ = lane % 4 * 2;
    halves = s.rows > 8 ? 2 : 1;
    const int g = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = min(s.first_row_of_tile + g + half * 8, s.slice.rows * p.group - 1);
      const RowAndHead at(p, s, index);
      last_[half] = s.slice.past + at.row;
      first_[half] = p.args.window > 0 ? last_[half] - p.args.window + 1 : 0;
      phi[half] = p.args.phi != nullptr ? p.args.phi[s.kv_head * p.group + at.head] * kLog2E : 0.0f;
    }
    all_see_until_ = s.slice.past;
    all_see_from_ = p.args.window > 0 ? s.slice.past + s.slice.rows - p.args.window : 0;
  }

  // Queries as the left side of products, from their rows in shared memory. Rows that no head has are another's again:
  // what comes of them is left.
  __device__ void take_queries(const Segment& s, uint32_t shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
    queries_ = shared;
    query_row_ = row < s.rows ? row : 0;
    query_piece_ = lane / 16;
    if constexpr (!Config::kSharedQueries) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) take_step(k, q_[k]);
    }
  }

  // Scores in log2: score[n] belongs to positions 8 n .. 8 n + 7 of the unit.
  __device__ void score_unit(uint32_t keys, int unit, float (&score)[2][4]) {
    float sums[2][2][4] = {};  // of every other step: products that add to the same sum wait for each other
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, keys + Rows::offset(key_row_, k * 2 + key_piece_));
      uint32_t(&q)[4] = q_[Config::kSharedQueries ? 0 : k];
      if constexpr (Config::kSharedQueries) take_step(k, q);
      mma<T>(sums[k % 2][0], q, b[0], b[1]);
      mma<T>(sums[k % 2][1], q, b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = sums[0][n][i] + sums[1][n][i];
    }
    const bool masked = unit * kUnit + kUnit - 1 > all_see_until_ || unit * kUnit < all_see_from_;
    finish_scores(p_.args, reinterpret_cast<float(&)[8]>(score));
    if (!masked) return;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = unit * kUnit + n * 8 + column_ + i % 2;
        if (position > last_[i / 2] || position < first_[i / 2]) score[n][i] = kMasked;
      }
    }
  }

  template <Softmax kSoftmax>
  __device__ void follow_maximum(const float (&score)[2][4], RowSums<kDim>& sums) const {
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = half * 2;
      largest[half] = fmaxf(fmaxf(score[0][i], score[0][i + 1]), fmaxf(score[1][i], score[1][i + 1]));
    }
    constexpr float kAbove = kSoftmax == Softmax::Lazy ? kRoom<T> : 0;
    if (kSoftmax == Softmax::Lazy) {
      bool behind = largest[0] > sums.largest[0] + (kLazySlack - kAbove);
      if (halves > 1) behind |= largest[1] > sums.largest[1] + (kLazySlack - kAbove);
      if (!__any_sync(~0u, behind)) return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half < halves) sums.rescale(half, fmaxf(sums.largest[half], quad_max(largest[half]) + kAbove));
    }
  }

  // Adds the weighted values of a unit; `base` is what each row's weights are relative to.
  __device__ void add_unit(uint32_t values, float (&score)[2][4], const float (&base)[2], RowSums<kDim>& sums) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = i / 2 < halves ? exp2_fast(score[n][i] - base[i / 2]) : 0.0f;
        sums.total[i / 2] += score[n][i];
      }
    }
    const uint32_t weights[4] = {pack<T>(score[0][0], score[0][1]), pack<T>(score[0][2], score[0][3]),
                                 pack<T>(score[1][0], score[1][1]), pack<T>(score[1][2], score[1][3])};
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, values + Rows::offset(value_row_, n * 2 + value_piece_));
      mma<T>(sums.o[n * 2], weights, b[0], b[1]);
      mma<T>(sums.o[n * 2 + 1], weights, b[2], b[3]);
    }
  }

  float phi[2];  // in log2
  int halves;    // 1: no row beyond the eighth is used

 private:
  __device__ void take_step(int k, uint32_t (&q)[4]) const {
    load_matrices(q, queries_ + Rows::offset(query_row_, k * 2 + query_piece_));
  }

  const DecodeParams& p_;
  uint32_t queries_;
  int query_row_, query_piece_;
  uint32_t q_[Config::kSharedQueries ? 1 : kDim / 16][4];
  int key_row_, key_piece_, value_row_, value_piece_, column_;
  int last_[2], first_[2], all_see_until_, all_see_from_;
};

}  // namespace millrace
