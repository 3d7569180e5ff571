// Items of packed_stream.cuh: which of them a block has, and the units of a warp's items on their way to shared memory.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"
#include "kernels/linear/cuda/quantized/unit_ring.cuh"

namespace millrace {

inline constexpr int kStreamMostGroups = 512, kStreamMostSegments = 32, kStreamMostPairs = 64;

// Warps of a block, each with one unit of gate and of up (kTiles 2), or of a plain layer, in flight. 12 to 24 units are
// enough for the memory. With more of them requests only queue for longer, and multiprocessors whose requests wait
// longest end late. More warps also hide the latencies of decoding, as far as registers allow.
template <DType kFormat, int kTiles>
inline constexpr int kStreamWarps = kFormat == DType::MXFP4  ? (kTiles == 2 ? 16 : 24)
                                    : kTiles == 2            ? 12
                                    : kFormat == DType::Q4_0 ? 24
                                                             : 16;

struct PackedStreamParams {
  GroupedParams p;
  int units;         // along K
  int tiles;         // items of a tile of pairs
  int most_x_bytes;  // of staged x, behind the units of all warps
};

// A block's items of one tile of pairs.
struct StreamSegment {
  const uint8_t* matrix;
  PairTile pairs;
  int begin, end;      // numbered within the block
  int first_tile;      // tile of rows of the first one
  int pairs_at, x_at;  // its places among the staged pairs and in the staged x
};

// The items of a block: `count` from number `first` of all.
struct StreamShare {
  int first, count, segments;

  // All lanes of a warp call it. `offsets`: of the groups' pairs, cut into tiles of `size`.
  __device__ StreamShare(const int32_t* offsets, int groups, int size, int tiles) {
    int all = 0;
    for (int g = static_cast<int>(threadIdx.x) % 32; g < groups; g += 32) {
      all += (offsets[g + 1] - offsets[g] + size - 1) / size;
    }
    const unsigned items = __reduce_add_sync(~0u, static_cast<unsigned>(all)) * static_cast<unsigned>(tiles);
    const auto begin_of = [&](unsigned block) { return static_cast<int>(items * block / gridDim.x); };
    first = begin_of(blockIdx.x);
    count = begin_of(blockIdx.x + 1) - first;
    segments = count == 0 ? 0 : (first + count - 1) / tiles - first / tiles + 1;
  }

  __device__ StreamSegment segment(const GroupedParams& p, const int32_t* offsets, int size, int tiles,
                                   int index) const {
    const int of_pairs = first / tiles + index;
    const PairTile pairs = find_tile(offsets, p.groups, size, of_pairs);
    const int begin = max(of_pairs * tiles - first, 0), end = min((of_pairs + 1) * tiles - first, count);
    return {reinterpret_cast<const uint8_t*>(p.matrix(pairs.group)),
            pairs,
            begin,
            end,
            first + begin - of_pairs * tiles,
            0,
            0};
  }
};

// Gives each segment its places. Segments are staged together as long as their pairs and x fit; the next one begins a
// round of its own, at place 0. `bytes_of(pairs)`: of their x.
template <class BytesOf>
__device__ inline void place_segments(StreamSegment* segments, int count, int most_bytes, BytesOf bytes_of) {
  int pairs = 0, bytes = 0;
  for (int s = 0; s < count; ++s) {
    const int own = segments[s].pairs.count;
    if (pairs + own > kStreamMostPairs || bytes + bytes_of(own) > most_bytes) pairs = bytes = 0;
    segments[s].pairs_at = pairs;
    segments[s].x_at = bytes;
    pairs += own;
    bytes += bytes_of(own);
  }
}

// The segments from `first` on that are staged together end before this one.
__device__ inline int end_of_round(const StreamSegment* segments, int count, int first) {
  int end = first + 1;
  while (end < count && segments[end].pairs_at > 0) ++end;
  return end;
}

// A warp's units: those of its items, one behind the other. The next one, of gate and of up (kTiles 2), is on its way
// while the warp multiplies the one before.
template <DType kFormat, int kTiles>
class ItemStream {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize, kSlotBytes = kTiles * kSize;

  // `slot`: kSlotBytes of shared memory. `full`: a barrier, ready.
  __device__ __forceinline__ ItemStream(const PackedStreamParams& f, const StreamShare& share,
                                        const StreamSegment* segments, uint8_t* slot, uint64_t* full)
      : f_(f), segments_(segments), slot_(slot), full_(full), item_(warp_index()), count_(share.count) {
    enter();
    fetch();
  }

  // The next unit. Call refill() after all lanes have read it.
  __device__ __forceinline__ const uint8_t* wait() {
    wait_barrier(full_, parity_);
    parity_ ^= 1;
    return slot_;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  __device__ __forceinline__ void fetch() {
    if (item_ >= count_) return;
    if (threadIdx.x % 32 == 0) {
      arrive_expecting(full_, kSlotBytes);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int64_t apart = static_cast<int64_t>(f_.tiles) * f_.units * kSize;  // from gate to up
        copy_bulk(slot_ + tile * kSize, from_ + tile * apart, kSize, full_);
      }
    }
    from_ += kSize;
    if (--left_ > 0) return;
    item_ += kStreamWarps<kFormat, kTiles>;
    enter();
  }

  // Goes to the first unit of the item.
  __device__ __forceinline__ void enter() {
    if (item_ >= count_) return;
    while (item_ >= segments_->end) ++segments_;
    const int tile = segments_->first_tile + item_ - segments_->begin;
    from_ = segments_->matrix + static_cast<int64_t>(tile) * f_.units * kSize;
    left_ = f_.units;
  }

  const PackedStreamParams& f_;
  const StreamSegment* segments_;  // that of the next unit to copy
  uint8_t* slot_;
  uint64_t* full_;
  const uint8_t* from_ = nullptr;
  int item_, count_, left_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace millrace
