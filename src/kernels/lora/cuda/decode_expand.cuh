// The second half of a decode's adapters: y += B inner, divided along the columns over the warps of a cluster. A warp
// computes 64 columns of a part at a time: lane 4 g + t loads columns 8 g .. 8 g + 7 of B and gets columns 16 t .. 16 t
// + 15 of row g.
#pragma once

#include "kernels/lora/cuda/decode.cuh"

namespace millrace {

inline constexpr int kLaneColumns = 16;

// 64 columns of a part; part < 0: none.
struct LoraTile {
  int part = -1, index = 0;
};

__device__ inline LoraShare tiles_of_block(const LoraGroupRows& group, int columns) {
  return {(columns + kTileColumns - 1) / kTileColumns, group.block, group.log_blocks};
}

// The i-th tile of this block.
__device__ inline LoraTile find_tile(const LoraGroupRows& group, const LoraWeights& w, int i) {
#pragma unroll 1
  for (int part = 0; part < w.parts; ++part) {
    const LoraShare share = tiles_of_block(group, w.part[part].cols);
    if (i < share.end - share.begin) return {part, share.begin + i};
    i -= share.end - share.begin;
  }
  return {};
}

template <class T>
__device__ __forceinline__ bool moves_b_by_eights(const LoraWeights::Part& part, const T* b) {
  return part.cols % 8 == 0 && reinterpret_cast<uintptr_t>(b) % 16 == 0;
}

// Requests this block's columns of all B for the L2 cache.
template <class T>
__device__ inline void prefetch_b(const LoraGroupRows& group, const LoraWeights& w) {
#pragma unroll 1
  for (int i = 0; i < w.parts; ++i) {
    const LoraWeights::Part& part = w.part[i];
    const T* b = reinterpret_cast<const T*>(w.b) + part.at;
    const LoraShare share = tiles_of_block(group, part.cols);
    const int begin = share.begin * kTileColumns, end = min(part.cols, share.end * kTileColumns);
    if (begin >= end || !moves_b_by_eights(part, b)) continue;
#pragma unroll 1
    for (int j = static_cast<int>(threadIdx.x); j < part.rank; j += kDecodeThreads)
      prefetch_bytes(b + int64_t{j} * part.cols + begin, (end - begin) * static_cast<int>(sizeof(T)));
  }
}

// A lane's share of 16 ranks of B: rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
struct BStep {
  uint32_t words[4][4];
  static __device__ int row(int i) { return static_cast<int>(threadIdx.x) % 4 * 2 + i % 2 + i / 2 * 8; }
};

// kWide: moves_by_eights().
template <bool kWide, class T>
__device__ __forceinline__ BStep load_b(const LoraWeights::Part& part, const T* b, int tile, int step) {
  const int column = tile * kTileColumns + static_cast<int>(threadIdx.x) % 32 / 4 * 8;
  BStep loaded;
  if constexpr (kWide) {
    const uint64_t policy = evict_normal_policy();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int rank = step * 16 + BStep::row(i);
      const uint4 v =
          load_stream_if(b + int64_t{rank} * part.cols + column, rank < part.rank && column < part.cols, policy);
      loaded.words[i][0] = v.x, loaded.words[i][1] = v.y, loaded.words[i][2] = v.z, loaded.words[i][3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int rank = step * 16 + BStep::row(i);
      const auto* from = reinterpret_cast<const uint16_t*>(b) + int64_t{rank} * part.cols + column;
      const auto at = [&](int c) { return rank < part.rank && column + c < part.cols ? uint32_t{from[c]} : 0; };
#pragma unroll
      for (int c = 0; c < 4; ++c) loaded.words[i][c] = at(2 * c) | at(2 * c + 1) << 16;
    }
  }
  return loaded;
}

template <bool kWide, class T>
__device__ __forceinline__ BStep load_first_b(const LoraWeights& w, LoraTile tile) {
  if (tile.part < 0) return {};
  const LoraWeights::Part& part = w.part[tile.part];
  return load_b<kWide>(part, reinterpret_cast<const T*>(w.b) + part.at, tile.index, 0);
}

// sums += 16 ranks of B times inner, [ranks][8], and the factor of the row. A value of inner is the sum of two 16-bit
// numbers: the upper half of the operand has the first one, the lower half the rest.
template <class T>
__device__ __forceinline__ void multiply_b(const BStep& b, const float* inner, float factor, int ranks,
                                           float (&sums)[8][4]) {
  const int group_row = static_cast<int>(threadIdx.x) % 32 / 4;
  uint32_t first[2] = {}, rest[2] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int rank = BStep::row(i);
    const float value = rank < ranks ? factor * inner[rank * kLoraGroup + group_row] : 0;
    const T near = from_float<T>(value), left = from_float<T>(value - to_float(near));
    first[i / 2] |= uint32_t{reinterpret_cast<const uint16_t&>(near)} << i % 2 * 16;
    rest[i / 2] |= uint32_t{reinterpret_cast<const uint16_t&>(left)} << i % 2 * 16;
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const uint32_t which = c % 2 == 0 ? 0x5410 : 0x7632;  // column c of two rows
    mma<T>(sums[c], first[0], rest[0], first[1], rest[1], __byte_perm(b.words[0][c / 2], b.words[1][c / 2], which),
           __byte_perm(b.words[2][c / 2], b.words[3][c / 2], which));
  }
}

// This lane's 16 columns of B inner, of which `b` is the first step.
template <bool kWide, class T>
__device__ __forceinline__ void expand_tile(const LoraWeights& w, LoraTile tile, BStep b, const float* inner,
                                            const float* factors, float (&out)[kLaneColumns]) {
  float sums[8][4] = {};
  __syncwarp();
  if (tile.part >= 0) {
    const LoraWeights::Part& part = w.part[tile.part];
    const T* from = reinterpret_cast<const T*>(w.b) + part.at;
    const float factor = factors[threadIdx.x % 32 / 4];
#pragma unroll 1
    for (int step = 0;;) {
      multiply_b<T>(b, inner + (part.first + step * 16) * kLoraGroup, factor, part.rank - step * 16, sums);
      if (++step * 16 >= part.rank) break;
      b = load_b<kWide>(part, from, tile.index, step);
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    out[c] = sums[c][0] + sums[c][2];
    out[8 + c] = sums[c][1] + sums[c][3];
  }
}

// Eight columns as they lie in memory: requested early, widened at their use.
template <class Y>
struct RawEight {
  static constexpr int kEach = 16 / sizeof(Y);
  Vector<Y, kEach> at[8 / kEach];
  __device__ __forceinline__ void load(const Y* from) {
#pragma unroll
    for (int i = 0; i < 8 / kEach; ++i) at[i] = reinterpret_cast<const Vector<Y, kEach>*>(from)[i];
  }
  __device__ __forceinline__ float get(int i) const { return to_float(at[i / kEach].at[i % kEach]); }
};

// Eight columns of y to which a lane adds, those of a part from `own` on.
template <bool kWide, class Y>
class AddedEight {
 public:
  __device__ __forceinline__ AddedEight(Y* y, const LoraWeights::Part& part, int own) : part_(part), own_(own) {
    if (y == nullptr || own >= part.cols) return;
    y_ = y + part.column_of(own);
    if constexpr (kWide) before_.load(y_);
  }
  __device__ __forceinline__ void add(const float* values) const {
    if (y_ == nullptr) return;
    if constexpr (kWide) {
      Eight v;
#pragma unroll
      for (int i = 0; i < 8; ++i) v.at[i] = before_.get(i) + values[i];
      narrow(y_, v);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (own_ + i >= part_.cols) return;
        Y* to = y_ + (part_.column_of(own_ + i) - part_.column_of(own_));
        *to = from_float<Y>(to_float(*to) + values[i]);
      }
    }
  }

 private:
  Y* y_ = nullptr;
  const LoraWeights::Part& part_;
  int own_;
  RawEight<Y> before_;
};

// Whether B and y can be moved by eights in all parts.
template <class T>
__device__ inline bool moves_by_eights(const LoraDecodeParams& p, const LoraWeights& w) {
  bool wide = p.wide;
#pragma unroll 1
  for (int i = 0; i < w.parts; ++i) {
    const LoraWeights::Part& part = w.part[i];
    wide = wide && moves_b_by_eights(part, reinterpret_cast<const T*>(w.b) + part.at) && part.column % 8 == 0 &&
           part.group % 8 == 0;
  }
  return wide;
}

// y += B inner, of a lane whose row of y begins at `y`; null: it has none. `begin()` is called once by all threads,
// after the first B and y were requested and before inner is read.
template <bool kWide, class T, class Y, class Begin>
__device__ __forceinline__ void expand_group(const LoraGroupRows& group, const LoraWeights& w, const float* inner,
                                             const float* factors, Y* y, Begin begin) {
  int index = static_cast<int>(threadIdx.x) / 32;
  LoraTile tile = find_tile(group, w, index);
  BStep b = load_first_b<kWide, T>(w, tile);
  for (bool is_first = true;; is_first = false) {
    const LoraWeights::Part& part = w.part[max(tile.part, 0)];
    const int own = tile.index * kTileColumns + static_cast<int>(threadIdx.x) % 4 * kLaneColumns;
    Y* row = tile.part >= 0 ? y : nullptr;
    const AddedEight<kWide, Y> low(row, part, own), high(row, part, own + 8);
    if (is_first) begin();
    if (tile.part < 0) break;
    float out[kLaneColumns];
    expand_tile<kWide, T>(w, tile, b, inner, factors, out);
    tile = find_tile(group, w, index += kDecodeWarps);
    b = load_first_b<kWide, T>(w, tile);
    low.add(out);
    high.add(out + 8);
  }
}

// feed = silu(gate) * up with both adapters added.
template <class T, class Begin>
__device__ __forceinline__ void expand_gated(const LoraDecodeParams& p, const LoraGroupRows& group,
                                             const LoraWeights& w, const float* inner, const float* factors, const T* y,
                                             T* feed, Begin begin) {
  const auto part_of = [&](bool up) {
    for (int i = 0; i < w.parts; ++i) {
      if ((w.part[i].column > 0) == up) return i;
    }
    return -1;
  };
  const int gate_part = part_of(false), up_part = part_of(true);
  const LoraShare share = tiles_of_block(group, p.half);
  int tile = share.begin + static_cast<int>(threadIdx.x) / 32;
  const auto first_b = [&](int part) { return load_first_b<true, T>(w, {tile < share.end ? part : -1, tile}); };
  BStep gate_b = first_b(gate_part), up_b = first_b(up_part);
  for (bool is_first = true;; is_first = false) {
    const int own = tile * kTileColumns + static_cast<int>(threadIdx.x) % 4 * kLaneColumns, group_size = p.gate_group;
    RawEight<T> gates[2], ups[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = own + 8 * half;
      if (y == nullptr || tile >= share.end || at >= p.half) break;
      const T* from = y + (group_size == 0 ? at : at / group_size * 2 * group_size + at % group_size);
      gates[half].load(from);
      ups[half].load(from + (group_size == 0 ? p.half : group_size));
    }
    if (is_first) begin();
    if (tile >= share.end) break;
    float gate[kLaneColumns], up[kLaneColumns];
    expand_tile<true, T>(w, {gate_part, tile}, gate_b, inner, factors, gate);
    expand_tile<true, T>(w, {up_part, tile}, up_b, inner, factors, up);
    tile += kDecodeWarps;
    gate_b = first_b(gate_part), up_b = first_b(up_part);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = own + 8 * half;
      if (y == nullptr || at >= p.half) break;
      Eight v;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float x = gates[half].get(i) + gate[8 * half + i];
        v.at[i] = __fdividef(x, 1 + __expf(-x)) * (ups[half].get(i) + up[8 * half + i]);
      }
      narrow(feed + at, v);
    }
  }
}

}  // namespace millrace
