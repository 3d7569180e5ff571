// The loading warps of a block that attends to expanded keys and values, and the tiles that it takes.
#pragma once

#include "kernels/attention/cuda/prefill/expanded.h"
#include "kernels/attention/cuda/prefill/warpgroup_feed.cuh"

namespace millrace {

struct ExpandedParams {
  PrefillParams prefill;
  CUtensorMap keys, values;  // [position][head][column]
  CUtensorMap shared;        // [position][column]
  CudaMatrix plain;
  int64_t plain_stride = 0, shared_stride = 0;
  int plain_dim = 0, shared_dim = 0, value_dim = 0;
  DeviceSlice slice;
  int begin = 0, end = 0;
  ExpandedSums before, after;
};

inline constexpr int kSharedColumns = 64;            // of a key in shared memory, behind those of its head
inline constexpr int kFromBefore = 1, kToAfter = 2;  // TileNote::pieces

// The tiles of queries that attend to the piece, in the order of for_each_tile(). Called by whole warps as
// visit(TileNote).
template <class Config, class Visit>
__device__ void for_each_expanded_tile(const ExpandedParams& w, Visit visit) {
  const PrefillParams& p = w.prefill;
  const int items = p.tiles * p.heads, blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  for (int round = 0; round * blocks < items; ++round) {
    const int item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (item >= items) continue;
    const int row = (p.tiles - 1 - item / p.heads) * Config::kRows, first = w.slice.past + row;
    const int from = p.args.window > 0 ? max(0, first - p.args.window + 1) : 0;
    const int until = w.slice.past + min(row + Config::kRows, w.slice.rows);
    if (from >= w.end || until <= w.begin) continue;
    const int begin = max(from / Config::kTokens * Config::kTokens, w.begin), end = min(until, w.end);
    const int pieces = (from < w.begin ? kFromBefore : 0) | (until > w.end ? kToAfter : 0);
    constexpr int kNoEnd = 0x7fffffff;  // rows behind the sequence are zeros, so that none must be silenced
    visit(TileNote{item % p.heads, w.slice.first_row + row, first, w.slice.rows - row, kNoEnd, begin,
                   (end - begin + Config::kTokens - 1) / Config::kTokens, pieces});
  }
}

// One lane copies whole tiles. Columns beyond a head's read as zeros.
template <int kPlain, int kValueDim>
class ExpandedFeed {
  using Space = WarpgroupSpace<kPlain + kSharedColumns, kValueDim>;
  using Config = typename Space::Config;

 public:
  __device__ ExpandedFeed(const ExpandedParams& w, const Space& space) : w_(w), space_(space) {}

  __device__ void run() {
    for_each_expanded_tile<Config>(w_, [&](const TileNote& note) {
      int row = note.first_position - w_.begin;
      for (int t = 0; t < note.key_tiles; ++t, at_ = at_.next(), row += Config::kTokens) {
        if (threadIdx.x == 0) copy(note.head, row);
        __syncwarp();
      }
    });
  }

 private:
  __device__ void copy(int head, int row) {
    const CopyBarrier keys = space_.keys_full(at_), values = space_.values_full(at_);
    space_.keys_empty(at_).wait(at_.parity ^ 1);
    keys.expect(Config::kKeyBytes);
    uint32_t to = space_.key_tile(at_);
    for (int column = 0; column < kPlain; column += 64, to += Config::kPanelBytes)
      copy_box(to, &w_.keys, column, head, row, keys);
    copy_box(to, &w_.shared, 0, row, keys);
    space_.values_empty(at_).wait(at_.parity ^ 1);
    values.expect(Config::kValueBytes);
    to = space_.value_tile(at_);
    for (int column = 0; column < kValueDim; column += 64, to += Config::kPanelBytes)
      copy_box(to, &w_.values, column, head, row, values);
  }

  const ExpandedParams& w_;
  const Space& space_;
  typename Space::Place at_;
};

// Columns of the head, then shared ones, each followed by zeros.
template <class T, int kPlain, int kValueDim>
class ExpandedQueries : QueryWriter<T, WarpgroupSpace<kPlain + kSharedColumns, kValueDim>> {
  using Space = WarpgroupSpace<kPlain + kSharedColumns, kValueDim>;
  using Base = QueryWriter<T, Space>;
  using Config = typename Space::Config;
  static constexpr int kPlainPieces = kPlain / 8, kPieces = kPlainPieces + kSharedColumns / 8;

 public:
  __device__ ExpandedQueries(const ExpandedParams& w, const Space& space) : Base(space), w_(w) {}

  __device__ void run() {
    for_each_expanded_tile<Config>(w_, [&](const TileNote& note) {
      this->await_room();
      with_device_type(w_.plain.dtype, [&](auto type) { return load<decltype(type)>(note), 0; });
      this->finish();
      this->note(note);
    });
    this->await_room();
    this->note({});
  }

 private:
  template <class Source>
  __device__ void load(const TileNote& note) {
    const CudaMatrix& q = w_.prefill.args.q;
    const Source* plain =
        static_cast<const Source*>(w_.plain.data) + note.row * w_.plain.stride + note.head * w_.plain_stride;
    const Source* shared = static_cast<const Source*>(q.data) + note.row * q.stride + note.head * w_.shared_stride;
#pragma unroll 1
    for (int i = this->thread_; i < Config::kRows * kPieces; i += Base::kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const bool is_plain = piece < kPlainPieces;
      const int column = (is_plain ? piece : piece - kPlainPieces) * 8;
      const bool used = row < note.rows && column < (is_plain ? w_.plain_dim : w_.shared_dim);
      const Source* from = is_plain ? plain : shared;
      if (used) from += row * (is_plain ? w_.plain.stride : q.stride) + column;
      this->bring(this->space_.query_piece(row, piece), from, used);
    }
  }

  const ExpandedParams& w_;
};

}  // namespace millrace
