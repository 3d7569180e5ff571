// Prefill attention on Hopper: one warp feeds tiles of 128 keys and values by bulk copies, two warpgroups with 64 query
// rows each multiply. While the tensor cores weigh the values of one tile, the softmax of the next one is computed.
#pragma once

#include <cuda.h>

#include "kernels/attention/cuda/prefill_kernel.cuh"
#include "kernels/attention/cuda/warpgroup.cuh"
#include "kernels/cuda/vectors.cuh"

namespace millrace {

struct WarpgroupParams {
  PrefillParams prefill;
  int box_rows = 0;  // divides a page and a tile
  CUtensorMap keys, values;
};

template <int kDim>
struct WarpgroupConfig {
  static constexpr int kConsumers = 2, kThreads = (kConsumers + 1) * 128, kRows = kConsumers * 64;
  static constexpr int kTokens = 128, kStages = 2, kPanels = kDim / 64;
  static constexpr int kPanelBytes = kTokens * 128;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kQueryBytes = kPanels * kRows * 128;
  static constexpr int kBarrierBytes = 4 * kStages * 8;
  static constexpr int kSharedBytes = 1024 + kQueryBytes + 2 * kStages * kTileBytes + kBarrierBytes;
};

// Where things are in shared memory.
template <int kDim>
struct WarpgroupSpace {
  using Config = WarpgroupConfig<kDim>;
  uint32_t queries, keys, values, barriers;

  __device__ explicit WarpgroupSpace(uint32_t base) {
    queries = (base + 1023) / 1024 * 1024;
    keys = queries + Config::kQueryBytes;
    values = keys + Config::kStages * Config::kTileBytes;
    barriers = values + Config::kStages * Config::kTileBytes;
  }
  __device__ uint32_t key_tile(int t) const { return keys + t % Config::kStages * Config::kTileBytes; }
  __device__ uint32_t value_tile(int t) const { return values + t % Config::kStages * Config::kTileBytes; }
  __device__ CopyBarrier barrier(int which, int t) const {
    return CopyBarrier(barriers + static_cast<uint32_t>(which * Config::kStages + t % Config::kStages) * 8);
  }
  __device__ CopyBarrier keys_full(int t) const { return barrier(0, t); }
  __device__ CopyBarrier keys_empty(int t) const { return barrier(1, t); }
  __device__ CopyBarrier values_full(int t) const { return barrier(2, t); }
  __device__ CopyBarrier values_empty(int t) const { return barrier(3, t); }
  __device__ static int parity(int t) { return t / Config::kStages % 2; }
};

// The tiles that the rows of a block see; tiles are counted from zero here.
struct TileRange {
  int first_position = 0, count = 0;
};
template <int kDim>
__device__ TileRange tile_range(const PrefillParams& p, const PrefillTile& tile) {
  using Config = WarpgroupConfig<kDim>;
  const int from = p.args.window > 0 ? max(0, tile.slice.past + tile.first - p.args.window + 1) : 0;
  const int last = tile.slice.past + min(tile.first + Config::kRows, tile.slice.rows) - 1;
  const int begin = from / Config::kTokens;
  return {begin * Config::kTokens, last / Config::kTokens + 1 - begin};
}

// One thread. `turn` counts tiles over both passes: it says which stage comes next.
template <int kDim>
__device__ void feed(const WarpgroupParams& w, const PrefillTile& tile, const TileRange& range,
                     const WarpgroupSpace<kDim>& space, int turn) {
  using Config = WarpgroupConfig<kDim>;
  const PrefillParams& p = w.prefill;
  const int32_t* table = p.args.tables + tile.sequence * p.args.table_pitch;
  const int kv_head = tile.head / (p.heads / p.kv_heads), length = tile.slice.past + tile.slice.rows;
  constexpr int kNowhere = 0x7fffffff;  // past the end of the matrix: zeros
  auto copy = [&](const CUtensorMap& map, uint32_t to, int t, const CopyBarrier& full) {
    full.expect(Config::kTileBytes);
    for (int at = 0; at < Config::kTokens; at += w.box_rows) {
      const int position = range.first_position + t * Config::kTokens + at;
      int row = kNowhere;
      if (position < length) {
        row = (table[position / p.block_size] * p.kv_heads + kv_head) * p.block_size + position % p.block_size;
      }
      for (int panel = 0; panel < Config::kPanels; ++panel) {
        copy_box(to + panel * Config::kPanelBytes + at * 128, &map, panel * 64, row, full);
      }
    }
  };
  for (int t = 0; t < range.count; ++t, ++turn) {
    space.keys_empty(turn).wait(WarpgroupSpace<kDim>::parity(turn) ^ 1);
    copy(w.keys, space.key_tile(turn), t, space.keys_full(turn));
    space.values_empty(turn).wait(WarpgroupSpace<kDim>::parity(turn) ^ 1);
    copy(w.values, space.value_tile(turn), t, space.values_full(turn));
  }
}

// 64 query rows of a warpgroup; each warp has 16 of them.
template <class T, int kDim>
class WarpgroupRows {
  using Config = WarpgroupConfig<kDim>;
  using Space = WarpgroupSpace<kDim>;

 public:
  __device__ WarpgroupRows(const PrefillParams& p, const PrefillTile& tile, const TileRange& range, const Space& space,
                           int group)
      : p_(p), tile_(tile), range_(range), space_(space), group_(group) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    column_ = lane % 4 * 2;
    row_zero_ = tile.slice.past + tile.first + group * 64 + warp * 16;
    last_ = row_zero_ + lane / 4;
    with_device_type(p.args.q.dtype, [&](auto source) {
      load<decltype(source)>();
      return 0;
    });
  }

  // kSafe: products may be anything, even infinite. Else they are trusted, and the return value tells whether that was
  // right.
  template <bool kSafe>
  __device__ bool run(int turn) {
    float score[64];
    uint32_t weights[Config::kTokens / 16][4];
    float factor[2];
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o_[i] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) largest_[half] = kNoScore, total_[half] = 0;
    turn_ = turn;
    multiply_keys(0, score);
    warpgroup_wait<0>();
    hold(score);
    release(space_.keys_empty(turn_));
    weigh<kSafe>(0, score, factor);
    pack_weights(score, weights);
    if (group_ == 1) pass_turn();
    for (int t = 0; t + 1 < range_.count; ++t) {
      await_turn();
      multiply_keys(t + 1, score);
      add_values(t, weights);
      pass_turn();
      warpgroup_wait<1>();
      hold(score);
      release(space_.keys_empty(turn_ + t + 1));
      const bool moved = weigh<kSafe>(t + 1, score, factor);
      warpgroup_wait<0>();
      hold(o_);
      release(space_.values_empty(turn_ + t));
      if (moved) rescale(factor);
      pack_weights(score, weights);
    }
    if (group_ == 0) await_turn();
    add_values(range_.count - 1, weights);
    warpgroup_wait<0>();
    hold(o_);
    release(space_.values_empty(turn_ + range_.count - 1));
    return sound(total_[0]) && sound(total_[1]);
  }

  __device__ void write() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = row_zero_ - tile_.slice.past + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = 1 / quad_sum(total_[half]);
      if (row + half * 8 >= tile_.slice.rows) continue;
      const int64_t at = (tile_.slice.first_row + row + half * 8) * p_.args.out.stride +
                         static_cast<int64_t>(tile_.head) * kDim + column_;
      with_device_type(p_.args.out.dtype, [&](auto type) {
        using Out = decltype(type);
        Out* out = static_cast<Out*>(p_.args.out.data) + at;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          *reinterpret_cast<Vector<Out, 2>*>(out + n * 8) = {from_float<Out>(o_[n * 4 + half * 2] * inverse),
                                                             from_float<Out>(o_[n * 4 + half * 2 + 1] * inverse)};
        }
        return 0;
      });
    }
  }

 private:
  // The group's queries, row by row into their panels.
  template <class Source>
  __device__ void load() {
    constexpr int kPieces = kDim / 8, kEach = 64 * kPieces / 128;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    uint4 packed[kEach] = {};
#pragma unroll
    for (int j = 0; j < kEach; ++j) {  // all of them in flight at once
      const int i = j * 128 + thread, in_slice = tile_.first + group_ * 64 + i / kPieces;
      if (in_slice >= tile_.slice.rows) continue;
      const Source* from = static_cast<const Source*>(p_.args.q.data) +
                           (tile_.slice.first_row + in_slice) * p_.args.q.stride +
                           static_cast<int64_t>(tile_.head) * kDim + i % kPieces * 8;
      const Eight x = widen(from);
      packed[j] = {pack<T>(x.at[0], x.at[1]), pack<T>(x.at[2], x.at[3]), pack<T>(x.at[4], x.at[5]),
                   pack<T>(x.at[6], x.at[7])};
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = j * 128 + thread, row = i / kPieces, piece = i % kPieces;
      const uint32_t to =
          space_.queries + (piece / 8 * Config::kRows + group_ * 64 + row) * 128 + (piece % 8 ^ row % 8) * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(packed[j].x), "r"(packed[j].y),
                   "r"(packed[j].z), "r"(packed[j].w)
                   : "memory");
    }
    publish_to_tensor_cores();
    asm volatile("bar.sync %0, 128;" ::"r"(group_ + 1) : "memory");
  }

  __device__ void multiply_keys(int t, float (&score)[64]) {
    space_.keys_full(turn_ + t).wait(Space::parity(turn_ + t));
    const uint32_t queries = space_.queries + group_ * 64 * 128, keys = space_.key_tile(turn_ + t);
    hold(score);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const uint32_t along = k % 4 * 32;
      warpgroup_multiply<T>(score, panel_descriptor(queries + k / 4 * Config::kRows * 128 + along),
                            panel_descriptor(keys + k / 4 * Config::kPanelBytes + along), k > 0);
    }
    warpgroup_commit();
  }

  __device__ void add_values(int t, const uint32_t (&weights)[Config::kTokens / 16][4]) {
    space_.values_full(turn_ + t).wait(Space::parity(turn_ + t));
    const uint32_t values = space_.value_tile(turn_ + t);
    const int used = tile_.slice.past + tile_.slice.rows - (range_.first_position + t * Config::kTokens);
    if (used < Config::kTokens) silence(values, used);
    hold(o_);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < Config::kTokens / 16; ++k) {
      warpgroup_add<T>(o_, weights[k], panel_descriptor(values + k * 16 * 128, Config::kPanelBytes));
    }
    warpgroup_commit();
  }

  // Slots past the end of the sequence may hold anything: even a weight of zero does not silence a NaN.
  __device__ void silence(uint32_t values, int used) {
    const int thread = static_cast<int>(threadIdx.x) - 128;
    const int pieces = (Config::kTokens - used) * 8;
    for (int i = thread; i < pieces * Config::kPanels; i += Config::kConsumers * 128) {
      const uint32_t to = values + i / pieces * Config::kPanelBytes + used * 128 + i % pieces * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    publish_to_tensor_cores();
    asm volatile("bar.sync 3, %0;" ::"n"(Config::kConsumers * 128) : "memory");
  }

  __device__ static bool sound(float total) { return total > 0 && total < 3e38f; }

  // Scores become weights relative to the maximum; says whether that has moved, and by which factors. Trusted scores
  // stay products until the exponential, which takes the scale in its stride.
  template <bool kSafe>
  __device__ bool weigh(int t, float (&score)[64], float (&factor)[2]) {
    const float scale = kSafe || p_.args.softcap > 0 ? 1.0f : p_.args.scale * kLog2E;
    if (kSafe) {
      finish_scores(p_.args, score);
    } else if (p_.args.softcap > 0) {
      soften_scores(p_.args, score);
    }
    mask(range_.first_position + t * Config::kTokens, score);
    float largest[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int i = 0; i < 64; ++i) largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], score[i]);
    largest[0] *= scale, largest[1] *= scale;
    const bool behind = largest[0] > largest_[0] + kLazySlack || largest[1] > largest_[1] + kLazySlack;
    const bool moved = __any_sync(~0u, behind);
    if (moved) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(largest_[half], quad_max(largest[half]));
        factor[half] = exp2_fast(largest_[half] - top);
        largest_[half] = top;
        total_[half] *= factor[half];
      }
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      score[i] = exp2_fast(score[i] * scale - largest_[i % 4 / 2]);
      total_[i % 4 / 2] += score[i];
    }
    return moved;
  }

  __device__ void mask(int first, float (&score)[64]) const {
    const int window = p_.args.window;
    if (first + Config::kTokens - 1 <= row_zero_ && (window == 0 || first >= row_zero_ + 16 - window)) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int position = first + i / 4 * 8 + column_ + i % 2, last = last_ + i % 4 / 2 * 8;
      if (position > last || (window > 0 && position <= last - window)) score[i] = kMasked;
    }
  }

  __device__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o_[i] *= factor[i % 4 / 2];
  }

  __device__ static void pack_weights(const float (&score)[64], uint32_t (&weights)[Config::kTokens / 16][4]) {
#pragma unroll
    for (int i = 0; i < Config::kTokens / 4; ++i) weights[i / 4][i % 4] = pack<T>(score[i * 2], score[i * 2 + 1]);
  }

  // The groups hand their products to the tensor cores in turns, so that one's softmax runs beside the other's
  // products.
  __device__ void await_turn() const { asm volatile("bar.sync %0, 256;" ::"r"(4 + group_) : "memory"); }
  __device__ void pass_turn() const { asm volatile("bar.arrive %0, 256;" ::"r"(5 - group_) : "memory"); }

  __device__ static void release(const CopyBarrier& empty) {  // each warp for itself
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  const PrefillParams& p_;
  const PrefillTile& tile_;
  const TileRange range_;
  const Space& space_;
  int group_, column_, row_zero_, last_, turn_ = 0;
  float largest_[2], total_[2];
  float o_[kDim / 2];
};

template <class T, int kDim>
__global__ void __launch_bounds__(WarpgroupConfig<kDim>::kThreads, 1)
    prefill_warpgroup(const __grid_constant__ WarpgroupParams w) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Config = WarpgroupConfig<kDim>;
  extern __shared__ unsigned char shared_bytes[];
  const WarpgroupSpace<kDim> space(shared_address(shared_bytes));
  if (threadIdx.x == 0) {
    prefetch_map(&w.keys);
    prefetch_map(&w.values);
  }
  allow_dependents();
  wait_for_predecessors();
  PrefillTile tile;
  if (!find_tile<Config::kRows>(w.prefill, tile)) return;
  const TileRange range = tile_range<kDim>(w.prefill, tile);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      space.keys_full(stage).init(1);
      space.values_full(stage).init(1);
      space.keys_empty(stage).init(Config::kConsumers * 4);
      space.values_empty(stage).init(Config::kConsumers * 4);
    }
    publish_to_tensor_cores();
  }
  __syncthreads();
  const bool trusted = w.prefill.args.scale > 0;  // or the largest product would not be the largest score
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) feed<kDim>(w, tile, range, space, 0);
    const bool again = __syncthreads_or(0) != 0;
    if (again && threadIdx.x == 0) feed<kDim>(w, tile, range, space, range.count);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    WarpgroupRows<T, kDim> rows(w.prefill, tile, range, space, static_cast<int>(threadIdx.x) / 128 - 1);
    const bool sound = rows.template run<false>(0) && trusted;
    const bool again = __syncthreads_or(sound ? 0 : 1) != 0;
    if (again) rows.template run<true>(range.count);
    rows.write();
  }
#endif
}

}  // namespace millrace
