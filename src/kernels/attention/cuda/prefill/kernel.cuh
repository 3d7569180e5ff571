// Prefill attention with warp-level tensor-core products. A block takes a tile of query rows of one head and iterates
// over the tiles of keys and values that these rows attend to, with copies one tile ahead. Each warp owns 16 rows.
#pragma once

#include "kernels/attention/cuda/mma.cuh"
#include "kernels/attention/cuda/prefill/entry.h"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

template <int kDim>
struct PrefillConfig {
  static constexpr int kWarps = 8, kThreads = kWarps * 32, kRows = kWarps * 16;
  static constexpr int kTokens = kDim > 128 ? 32 : 64;  // per tile
  static constexpr int kTileBytes = kTokens * kDim * 2;
  static constexpr int kStages = 2;
  static constexpr int kSharedBytes = kStages * 2 * kTileBytes;
};

// The query rows of a block.
struct PrefillTile {
  int sequence = 0, head = 0, first = 0;  // first row within the slice
  DeviceSlice slice;
};

template <class T, int kDim>
class TileLoader {
  using Config = PrefillConfig<kDim>;
  using Rows = SwizzledRows<kDim>;

 public:
  __device__ TileLoader(const PrefillParams& p, const PrefillTile& tile, uint32_t shared)
      : p_(p), table_(p.args.tables + tile.sequence * p.args.table_pitch), shared_(shared) {
    kv_head_ = tile.head / (p.heads / p.kv_heads);
    seen_until_ = tile.slice.past + tile.slice.rows;
    seen_from_ = p.args.window > 0 ? max(0, tile.slice.past + tile.first - p.args.window + 1) : 0;
  }

  __device__ void issue(int token_tile) const {
    const uint32_t to = shared_ + token_tile % Config::kStages * 2 * Config::kTileBytes;
    constexpr int kCopies = Config::kTokens * Rows::kPieces;
#pragma unroll
    for (int index = static_cast<int>(threadIdx.x); index < kCopies; index += Config::kThreads) {
      const int row = index / Rows::kPieces, piece = index % Rows::kPieces;
      const int position = token_tile * Config::kTokens + row;
      const bool seen = position < seen_until_ && position >= seen_from_;
      const int64_t page = seen ? table_[position / p_.block_size] : 0;
      const int64_t at =
          ((page * p_.kv_heads + kv_head_) * p_.block_size + position % p_.block_size) * kDim + piece * 8;
      copy_async(to + Rows::offset(row, piece), static_cast<const T*>(p_.args.keys) + at, seen);
      copy_async(to + Config::kTileBytes + Rows::offset(row, piece), static_cast<const T*>(p_.args.values) + at, seen);
    }
  }

 private:
  const PrefillParams& p_;
  const int32_t* table_;
  uint32_t shared_;
  int kv_head_, seen_until_, seen_from_;
};

// The 16 rows of one warp.
template <class T, int kDim>
class WarpRows {
  using Config = PrefillConfig<kDim>;
  using Rows = SwizzledRows<kDim>;
  static constexpr int kScoreTiles = Config::kTokens / 8;

 public:
  __device__ WarpRows(const PrefillParams& p, const PrefillTile& tile) : p_(p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    key_row_ = lane % 8 + lane / 16 * 8;
    key_piece_ = lane / 8 % 2;
    value_row_ = lane % 16;
    value_piece_ = lane / 16;
    column_ = lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile.first + warp * 16 + lane / 4 + half * 8;
      used_[half] = row < tile.slice.rows;
      at_[half] = tile.slice.first_row + (used_[half] ? row : 0);
      last_[half] = tile.slice.past + row;
      first_[half] = p.args.window > 0 ? last_[half] - p.args.window + 1 : 0;
    }
    sums_.clear();
    with_device_type(p.args.q.dtype, [&](auto source) {
      load<decltype(source)>(tile.head);
      return 0;
    });
  }

  __device__ void add_tile(uint32_t keys, uint32_t values, int first_position) {
    float score[kScoreTiles][4];
    multiply_keys(keys, score);
    prepare_scores(first_position, score);
    follow_maximum(score);
    add_values(values, score);
  }

  __device__ void write(int head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float factor = 1 / with_sink(p_.args, head, quad_sum(sums_.total[half]), sums_.largest[half]);
      if (!used_[half]) continue;
      const int64_t at = at_[half] * p_.args.out.stride + static_cast<int64_t>(head) * kDim + column_;
      with_device_type(p_.args.out.dtype, [&](auto type) {
        using Out = decltype(type);
        Out* out = static_cast<Out*>(p_.args.out.data) + at;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          *reinterpret_cast<Vector<Out, 2>*>(out + n * 8) = {from_float<Out>(sums_.o[n][half * 2] * factor),
                                                             from_float<Out>(sums_.o[n][half * 2 + 1] * factor)};
        }
        return 0;
      });
    }
  }

 private:
  template <class Source>
  __device__ void load(int head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Source* from = static_cast<const Source*>(p_.args.q.data) + at_[half] * p_.args.q.stride +
                           static_cast<int64_t>(head) * kDim + column_;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const auto v = *reinterpret_cast<const Vector<Source, 2>*>(from + i * 8);
        q_[i / 2][half + i % 2 * 2] = used_[half] ? pack<T>(to_float(v.at[0]), to_float(v.at[1])) : 0u;
      }
    }
  }

  __device__ void multiply_keys(uint32_t keys, float (&score)[kScoreTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        uint32_t b[4];
        load_matrices(b, keys + Rows::offset(n * 8 + key_row_, k * 2 + key_piece_));
        mma<T>(score[n], q_[k], b[0], b[1]);
        mma<T>(score[n + 1], q_[k], b[2], b[3]);
      }
    }
  }

  __device__ void prepare_scores(int first_position, float (&score)[kScoreTiles][4]) const {
    const int last_position = first_position + Config::kTokens - 1;
    const int row_zero = last_[0] - static_cast<int>(threadIdx.x) % 32 / 4;  // the warp's first row ends earliest,
    const bool masked = last_position > row_zero ||                          // its last row starts latest
                        (p_.args.window > 0 && first_position < row_zero + 15 - p_.args.window + 1);
    finish_scores(p_.args, reinterpret_cast<float(&)[kScoreTiles * 4]>(score));
    if (!masked) return;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = first_position + n * 8 + column_ + i % 2;
        if (position > last_[i / 2] || position < first_[i / 2]) score[n][i] = kMasked;
      }
    }
  }

  // Rescales only if some row's maximum lags far behind: sums relative to the old maximum stay valid.
  __device__ void follow_maximum(const float (&score)[kScoreTiles][4]) {
    float largest[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], score[n][i]);
    }
    constexpr float kSlack = kLazySlack - kRoom<T>;
    const bool behind = largest[0] > sums_.largest[0] + kSlack || largest[1] > sums_.largest[1] + kSlack;
    if (!__any_sync(~0u, behind)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums_.rescale(half, fmaxf(sums_.largest[half], quad_max(largest[half]) + kRoom<T>));
    }
  }

  __device__ void add_values(uint32_t values, float (&score)[kScoreTiles][4]) {
#pragma unroll
    for (int k = 0; k < kScoreTiles; k += 2) {
#pragma unroll
      for (int n = k; n < k + 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          score[n][i] = exp2_fast(score[n][i] - sums_.largest[i / 2]);
          sums_.total[i / 2] += score[n][i];
        }
      }
      const uint32_t weights[4] = {pack<T>(score[k][0], score[k][1]), pack<T>(score[k][2], score[k][3]),
                                   pack<T>(score[k + 1][0], score[k + 1][1]),
                                   pack<T>(score[k + 1][2], score[k + 1][3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        load_matrices_transposed(b, values + Rows::offset(k * 8 + value_row_, n * 2 + value_piece_));
        mma<T>(sums_.o[n * 2], weights, b[0], b[1]);
        mma<T>(sums_.o[n * 2 + 1], weights, b[2], b[3]);
      }
    }
  }

  const PrefillParams& p_;
  uint32_t q_[kDim / 16][4];
  RowSums<kDim> sums_;
  int key_row_, key_piece_, value_row_, value_piece_, column_;
  int last_[2], first_[2];
  int64_t at_[2];
  bool used_[2];
};

// Later tiles attend to more positions. They go first, so that no long tile is left for the end.
template <int kRows>
__device__ bool find_tile(const PrefillParams& p, int item, PrefillTile& tile) {
  const int index = p.tiles - 1 - item / p.heads;
  const Found found =
      find_point(p.sequences, index, [&](int i) { return (max(p.args.slices[i].rows, 0) + kRows - 1) / kRows; });
  if (found.sequence == p.sequences) return false;
  tile.sequence = found.sequence;
  tile.head = item % p.heads;
  tile.first = (index - found.begin) * kRows;
  tile.slice = p.args.slices[found.sequence];
  return true;
}

// The other kernel's results are valid, so there is nothing to compute.
__device__ inline bool is_needless(const CudaAttentionArgs& args) {
  return args.only_if != nullptr && *args.only_if == 0;
}

template <class T, int kDim>
__global__ void __launch_bounds__(PrefillConfig<kDim>::kThreads, 1)
    prefill_attention(const __grid_constant__ PrefillParams p) {
  using Config = PrefillConfig<kDim>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const uint32_t shared = shared_address(shared_bytes);
  allow_dependents();
  wait_for_predecessors();
  if (is_needless(p.args)) return;
  PrefillTile tile;
  if (!find_tile<Config::kRows>(p, static_cast<int>(blockIdx.x), tile)) return;

  const int last_row = min(tile.first + Config::kRows, tile.slice.rows) - 1;
  const int begin = p.args.window > 0 ? max(0, tile.slice.past + tile.first - p.args.window + 1) / Config::kTokens : 0;
  const int end = (tile.slice.past + last_row) / Config::kTokens + 1;
  const TileLoader<T, kDim> loader(p, tile, shared);
  loader.issue(begin);
  commit_copies();
  WarpRows<T, kDim> rows(p, tile);
  for (int t = begin; t < end; ++t) {
    if (t + 1 < end) loader.issue(t + 1);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const uint32_t at = shared + t % Config::kStages * 2 * Config::kTileBytes;
    rows.add_tile(at, at + Config::kTileBytes, t * Config::kTokens);
    __syncthreads();
  }
  rows.write(tile.head);
}

template <class T, int kDim>
PrefillEntry prefill_entry_of() {
  using Config = PrefillConfig<kDim>;
  return {prefill_attention<T, kDim>, Config::kThreads, Config::kSharedBytes, Config::kRows};
}

template <int kDim>
PrefillEntry prefill_entry_of(DType kv) {
  return kv == DType::F16 ? prefill_entry_of<__half, kDim>() : prefill_entry_of<__nv_bfloat16, kDim>();
}

}  // namespace millrace
