// Latent attention on Hopper for many query rows: a block takes 64 query rows (tokens times heads) of a sequence and
// streams tiles of 64 latent rows. A loading warp starts bulk copies. Warpgroup 0 multiplies keys, computes the weights
// and adds values to the left half of the sums; warpgroup 1 adds values to the right half, while warpgroup 0 multiplies
// the next keys.
#pragma once

#include "kernels/attention/cuda/decode/sums.cuh"
#include "kernels/attention/cuda/latent/products.cuh"
#include "kernels/attention/cuda/latent/row_map.cuh"

namespace millrace {

struct LatentWideParams {
  DecodeParams decode;  // group: all heads
  int tiles = 0;        // of all sequences, at most
  int parts = 1;        // blocks that share a tile's positions
  int box_rows = 0;     // of a bulk copy: divides a page and a tile
  CUtensorMap rows;
};

struct WideTile {
  static constexpr int kRows = 64, kTokens = 64, kLatent = 512, kKey = 576, kPanels = kKey / 64;
  static constexpr int kPanelBytes = kTokens * 128, kTileBytes = kPanels * kPanelBytes;
  static constexpr int kStages = 2, kGroups = 2, kThreads = (kGroups + 1) * 128;
  static constexpr int kHalf = kLatent / kGroups;
  static constexpr int kRowFloats = 3 * kRows;  // factors of the sums; then, for each row, largest score and total
  static constexpr int kSharedBytes =
      1024 + (1 + kStages) * kTileBytes + kPanelBytes + kRowFloats * 4 + 8 * (2 * kStages + 1);
  static_assert(kSharedBytes <= 227 * 1024);
};

struct WideSpace {
  uint32_t queries, tiles, weights, rows, barriers;

  __device__ explicit WideSpace(uint32_t base) {
    queries = (base + 1023) / 1024 * 1024;
    tiles = queries + WideTile::kTileBytes;
    weights = tiles + WideTile::kStages * WideTile::kTileBytes;
    rows = weights + WideTile::kPanelBytes;
    barriers = rows + WideTile::kRowFloats * 4;
  }
  __device__ uint32_t tile(int t) const { return tiles + t % WideTile::kStages * WideTile::kTileBytes; }
  __device__ CopyBarrier full(int t) const { return CopyBarrier(barriers + t % WideTile::kStages * 8); }
  __device__ CopyBarrier empty(int t) const {
    return CopyBarrier(barriers + (WideTile::kStages + t % WideTile::kStages) * 8);
  }
  __device__ CopyBarrier queries_full() const { return CopyBarrier(barriers + 2 * WideTile::kStages * 8); }
  static __device__ int parity(int t) { return t / WideTile::kStages % 2; }
};

// The query rows of a block and its share of their positions, in tiles of latent rows.
struct WideWork {
  int sequence = 0, first = 0, rows = 0;  // first: index into tokens * heads
  int begin = 0, end = 0;
  int tile = 0, part = 0;
  DeviceSlice slice;

  __device__ int length() const { return slice.past + slice.rows; }
};

// Neighbouring blocks take tiles of the same sequence, so that they read the same latent rows at the same time. Later
// tiles of a prompt attend to more positions and go first.
__device__ inline WideWork find_wide_work(const LatentWideParams& w) {
  const DecodeParams& p = w.decode;
  WideWork work;
  work.part = static_cast<int>(blockIdx.y);
  const int index = w.tiles - 1 - static_cast<int>(blockIdx.x);
  const auto tiles = [&](int i) {
    return (max(p.args.slices[i].rows, 0) * p.group + WideTile::kRows - 1) / WideTile::kRows;
  };
  const Found found = find_point(p.sequences, index, tiles);
  if (found.sequence == p.sequences) return work;
  work.tile = index;
  work.sequence = found.sequence;
  work.slice = p.args.slices[found.sequence];
  work.first = (index - found.begin) * WideTile::kRows;
  work.rows = min(WideTile::kRows, work.slice.rows * p.group - work.first);
  const int last = work.slice.past + (work.first + work.rows - 1) / p.group;
  const int all = last / WideTile::kTokens + 1;
  work.begin = all * work.part / w.parts;
  work.end = all * (work.part + 1) / w.parts;
  return work;
}

// One warp; lane i copies box i of every tile.
__device__ inline void feed_latent_rows(const LatentWideParams& w, const WideSpace& space, const WideWork& work) {
  const DecodeParams& p = w.decode;
  const int lane = static_cast<int>(threadIdx.x) % 32, box = lane * w.box_rows;
  bool waited = !p.args.early;
  for (int t = work.begin; t < work.end; ++t) {
    const int turn = t - work.begin, position = t * WideTile::kTokens + box;
    int row = kOutsideRows;
    if (box < WideTile::kTokens && position < work.length()) {
      const int page = p.page_of(position);
      row = p.args.tables[work.sequence * p.args.table_pitch + page] * p.block_size + position - page * p.block_size;
    }
    // Only rows of earlier steps may be read before the preceding kernels end.
    if (!waited && (t + 1) * WideTile::kTokens > work.slice.past) wait_for_predecessors(), waited = true;
    space.empty(turn).wait(WideSpace::parity(turn) ^ 1);
    if (lane == 0) space.full(turn).expect(WideTile::kTileBytes);
    __syncwarp();
    if (box >= WideTile::kTokens) continue;
    for (int panel = 0; panel < WideTile::kPanels; ++panel) {
      copy_box(space.tile(turn) + panel * WideTile::kPanelBytes + box * 128, &w.rows, panel * 64, row,
               space.full(turn));
    }
  }
  if (!waited) wait_for_predecessors();
}

// Three warps convert the queries to the type of the latent rows and store them in their panels.
template <class T>
__device__ void feed_latent_queries(const LatentWideParams& w, const WideSpace& space, const WideWork& work) {
  constexpr int kPieces = WideTile::kKey / 8;
  const DecodeParams& p = w.decode;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 - 1;
  wait_for_predecessors();
  with_device_type(p.args.q.dtype, [&](auto type) {
    using Source = decltype(type);
    for (int row = warp; row < WideTile::kRows; row += 3) {
      const int index = work.first + min(row, work.rows - 1);  // unused rows repeat the last
      const int token = index / p.group, head = index % p.group;
      const Source* from = static_cast<const Source*>(p.args.q.data) +
                           (work.slice.first_row + token) * p.args.q.stride +
                           static_cast<int64_t>(head) * WideTile::kKey;
#pragma unroll
      for (int piece = lane; piece < kPieces; piece += 32) {
        bring_piece<T>(space.queries + piece / 8 * (WideTile::kRows * 128) + row * 128 + (piece % 8 ^ row % 8) * 16,
                       from + piece * 8);
      }
    }
    return 0;
  });
  commit_copies();
  wait_copies<0>();
  publish_to_tensor_cores();
  space.queries_full().arrive();
}

// The multiplying warpgroups.
template <class T>
class WideRows {
  // Named barriers of both groups, or of group 0 alone.
  enum { kWeightsFull = 1, kWeightsEmpty = 2, kGroupZero = 3, kTotals = 4 };

 public:
  __device__ WideRows(const LatentWideParams& w, const WideSpace& space, const WideWork& work)
      : p_(w.decode), w_(w), space_(space), work_(work) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    row_ = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane_ / 4;
#pragma unroll
    for (int i = 0; i < 128; ++i) sums_[i] = 0;
  }

  __device__ void run_first() {
    float largest[2] = {kNoScore, kNoScore}, total[2] = {0, 0};
    int last[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      last[half] = work_.slice.past + (work_.first + min(row_ + half * 8, work_.rows - 1)) / p_.group;
    }
    space_.queries_full().wait(0);
    for (int t = work_.begin; t < work_.end; ++t) {
      const int turn = t - work_.begin;
      space_.full(turn).wait(WideSpace::parity(turn));
      if ((t + 1) * WideTile::kTokens > work_.length()) silence(turn, work_.length() - t * WideTile::kTokens);
      float score[32], factor[2] = {1, 1};
      multiply_keys(turn, score);
      mask(t, last, score);
      const bool moved = weigh(score, largest, total, factor);
      if (turn > 0) sync(kWeightsEmpty, 256);
      store_weights(score, factor);
      arrive(kWeightsFull, 256);
      sync(kGroupZero, 128);
      if (__any_sync(~0u, moved)) rescale(factor);
      add_values(turn, 0);
      release(turn);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] = quad_sum(total[half]);
      if (lane_ % 4 == 0) put_row(row_ + half * 8, {largest[half], total[half]});
    }
    sync(kTotals, 256);
    write(0);
  }

  __device__ void run_second() {
    for (int t = work_.begin; t < work_.end; ++t) {
      const int turn = t - work_.begin;
      sync(kWeightsFull, 256);
      const float factor[2] = {get_float(row_), get_float(row_ + 8)};
      if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) rescale(factor);
      space_.full(turn).wait(WideSpace::parity(turn));  // complete since group 0 has read it; makes it visible here
      add_values(turn, 1);
      if (t + 1 < work_.end) arrive(kWeightsEmpty, 256);
      release(turn);
    }
    sync(kTotals, 256);
    write(1);
  }

 private:
  static __device__ void sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  }
  static __device__ void arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  }
  __device__ void release(int turn) const {
    if (lane_ == 0) space_.empty(turn).arrive();
  }
  __device__ float get_float(int index) const {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(space_.rows + index * 4) : "memory");
    return x;
  }
  __device__ void put_row(int row, float2 x) const {
    const uint32_t to = space_.rows + (WideTile::kRows + row * 2) * 4;
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x.x), "f"(x.y) : "memory");
  }

  // Zeroes rows behind the sequence's end: they may hold NaN, and a weight of zero times NaN is NaN.
  __device__ void silence(int turn, int used) const {
    const int thread = static_cast<int>(threadIdx.x) % 128, pieces = (WideTile::kTokens - used) * 8;
    for (int i = thread; i < pieces * WideTile::kPanels; i += 128) {
      const uint32_t to = space_.tile(turn) + i / pieces * WideTile::kPanelBytes + used * 128 + i % pieces * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    publish_to_tensor_cores();
    sync(kGroupZero, 128);
  }

  __device__ void multiply_keys(int turn, float (&score)[32]) const {
    const uint64_t queries = panel_descriptor(space_.queries), keys = panel_descriptor(space_.tile(turn));
    hold(score);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < WideTile::kKey / 16; ++k) {
      const uint32_t at = k / 4 * WideTile::kPanelBytes + k % 4 * 32;
      multiply_latent_keys<T>(score, moved_by(queries, at), moved_by(keys, at), k > 0);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(score);
  }

  __device__ void mask(int t, const int (&last)[2], float (&score)[32]) const {
    finish_scores(p_.args, score);
    const int first = t * WideTile::kTokens;
    if (first + WideTile::kTokens - 1 <= work_.slice.past) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      if (first + i / 4 * 8 + lane_ % 4 * 2 + i % 2 > last[i % 4 / 2]) score[i] = kMasked;
    }
  }

  // Turns scores into weights. The maximum moves only if it lags far behind (Softmax::Lazy).
  __device__ bool weigh(float (&score)[32], float (&largest)[2], float (&total)[2], float (&factor)[2]) const {
    float top[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int i = 0; i < 32; ++i) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], score[i]);
    constexpr float kSlack = kLazySlack - kRoom<T>;
    const bool moved = __any_sync(~0u, top[0] > largest[0] + kSlack || top[1] > largest[1] + kSlack);
    if (moved) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float to = fmaxf(largest[half], quad_max(top[half]) + kRoom<T>);
        factor[half] = exp2_fast(largest[half] - to);
        largest[half] = to;
        total[half] *= factor[half];
      }
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      score[i] = exp2_fast(score[i] - largest[i % 4 / 2]);
      total[i % 4 / 2] += score[i];
    }
    return moved;
  }

  // The weights as a K-major panel, and the factors of the rows.
  __device__ void store_weights(const float (&score)[32], const float (&factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + half * 8;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const uint32_t to = space_.weights + row * 128 + (n ^ row % 8) * 16 + lane_ % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to),
                     "r"(pack<T>(score[n * 4 + half * 2], score[n * 4 + half * 2 + 1]))
                     : "memory");
      }
      if (lane_ % 4 == 0)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(space_.rows + row * 4), "f"(factor[half]) : "memory");
    }
    publish_to_tensor_cores();
  }

  __device__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 128; ++i) sums_[i] *= factor[i % 4 / 2];
  }

  __device__ void add_values(int turn, int group) {
    const uint64_t weights = panel_descriptor(space_.weights);
    const uint64_t values = panel_descriptor(space_.tile(turn) + group * (WideTile::kHalf / 64) * WideTile::kPanelBytes,
                                             WideTile::kPanelBytes);
    hold(sums_);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < WideTile::kTokens / 16; ++k) {
      add_latent_values<T>(sums_, moved_by(weights, k * 32), moved_by(values, k * 16 * 128), 1);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(sums_);
  }

  // Writes the result, or this block's part of it.
  __device__ void write(int group) const {
    const int column = group * WideTile::kHalf + lane_ % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + half * 8;
      if (row >= work_.rows) continue;
      const float largest = get_float(WideTile::kRows + row * 2), total = get_float(WideTile::kRows + row * 2 + 1);
      if (w_.parts > 1) {
        const int64_t at = (static_cast<int64_t>(work_.tile) * w_.parts + work_.part) * WideTile::kRows + row;
        if (column == 0) p_.summaries[at] = {largest, total};
        float* to = p_.partials + at * WideTile::kLatent + column;
#pragma unroll
        for (int n = 0; n < 32; ++n)
          *reinterpret_cast<float2*>(to + n * 8) = {sums_[n * 4 + half * 2], sums_[n * 4 + half * 2 + 1]};
        continue;
      }
      const int index = work_.first + row, token = index / p_.group, head = index % p_.group;
      const float factor = 1 / with_sink(p_.args, head, total, largest);
      with_device_type(p_.args.out.dtype, [&](auto type) {
        using Out = decltype(type);
        Out* out = static_cast<Out*>(p_.args.out.data) + (work_.slice.first_row + token) * p_.args.out.stride +
                   static_cast<int64_t>(head) * WideTile::kLatent + column;
#pragma unroll
        for (int n = 0; n < 32; ++n) {
          *reinterpret_cast<Vector<Out, 2>*>(out + n * 8) = {from_float<Out>(sums_[n * 4 + half * 2] * factor),
                                                             from_float<Out>(sums_[n * 4 + half * 2 + 1] * factor)};
        }
        return 0;
      });
    }
  }

  const DecodeParams& p_;
  const LatentWideParams& w_;
  const WideSpace& space_;
  const WideWork& work_;
  int lane_, row_;
  float sums_[128];
};

template <class T>
__global__ void __launch_bounds__(WideTile::kThreads, 1) latent_wide(const __grid_constant__ LatentWideParams w) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared_bytes[];
  const WideSpace space(shared_address(shared_bytes));
  if (threadIdx.x == 0) {
    prefetch_map(&w.rows);
    for (int i = 0; i < WideTile::kStages; ++i) {
      space.full(i).init(1);
      space.empty(i).init(WideTile::kGroups * 4);
    }
    space.queries_full().init(96);
    publish_to_tensor_cores();
  }
  allow_dependents();
  if (!w.decode.args.early) wait_for_predecessors();
  __syncthreads();
  const WideWork work = find_wide_work(w);
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (work.rows == 0) return wait_for_predecessors();
    if (threadIdx.x < 32) {
      feed_latent_rows(w, space, work);
    } else {
      feed_latent_queries<T>(w, space, work);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (work.rows == 0) return wait_for_predecessors();
    WideRows<T> rows(w, space, work);
    if (threadIdx.x < 256) {
      rows.run_first();
    } else {
      rows.run_second();
    }
  }
#endif
}

// Grid: (row of the tile, tile). A thread adds up four columns, in the order of the positions.
__global__ void __launch_bounds__(WideTile::kLatent / 4) add_wide_parts(const __grid_constant__ LatentWideParams w) {
  allow_dependents();
  if (!w.decode.args.early) wait_for_predecessors();
  const DecodeParams& p = w.decode;
  const int row = static_cast<int>(blockIdx.x), index = static_cast<int>(blockIdx.y);
  const Found found = find_point(p.sequences, index, [&](int i) {
    return (max(p.args.slices[i].rows, 0) * p.group + WideTile::kRows - 1) / WideTile::kRows;
  });
  wait_for_predecessors();
  if (found.sequence == p.sequences) return;
  Segment s;
  s.slice = p.args.slices[found.sequence];
  s.first_row_of_tile = (index - found.begin) * WideTile::kRows;
  if (s.first_row_of_tile + row >= s.slice.rows * p.group) return;
  const int four = static_cast<int>(threadIdx.x);
  PairSum sum;
#pragma unroll 4
  for (int part = 0; part < w.parts; ++part) {
    const int64_t at = (static_cast<int64_t>(index) * w.parts + part) * WideTile::kRows + row;
    const float2 of_row = __ldcg(p.summaries + at);
    sum.add(of_row.x, of_row.y, __ldcg(reinterpret_cast<const float4*>(p.partials + at * WideTile::kLatent) + four));
  }
  store_result<WideTile::kLatent>(p, s, row, four * 4, sum);
}

}  // namespace millrace
