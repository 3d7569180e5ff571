// Items of packed_stream.cuh: which of them a block has, and the units of a warp's items on their way to shared memory.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"
#include "kernels/linear/cuda/quantized/unit_ring.cuh"

namespace millrace {

inline constexpr int kStreamThreads = 32 * kRingWarps;
inline constexpr int kStreamMostGroups = 512, kStreamMostSegments = 32, kStreamMostSlots = 6;

struct PackedStreamParams {
  GroupedParams p;
  int units;   // along K
  int tiles;   // items of a tile of pairs
  int tokens;  // most pairs of a tile
  int slots;   // of a warp's ring
};

// A block's items of one tile of pairs.
struct StreamSegment {
  const uint8_t* matrix;
  PairTile pairs;
  int begin, end;  // numbered within the block
  int first_tile;  // tile of rows of the first one
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
    const int64_t items = int64_t{__reduce_add_sync(~0u, all)} * tiles;
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
    return {reinterpret_cast<const uint8_t*>(p.matrix(pairs.group)), pairs, begin, end,
            first + begin - of_pairs * tiles};
  }
};

// A warp's units: those of its items, one behind the other. Units of gate and up (kTiles 2) share a slot.
template <DType kFormat, int kTiles>
class ItemStream {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize, kSlotBytes = kTiles * kSize;

  // `full`: the warp's barriers, ready.
  __device__ __forceinline__ ItemStream(const PackedStreamParams& f, const StreamShare& share,
                                        const StreamSegment* segments, uint8_t* ring, uint64_t* full)
      : f_(f), segments_(segments), ring_(ring), full_(full), item_(warp_index()), count_(share.count) {
    enter();
    for (int i = 0; i < f.slots; ++i) fetch();
  }

  // The oldest units in flight. Call refill() after all lanes have read them.
  __device__ __forceinline__ const uint8_t* wait() const {
    wait_barrier(full_ + at_, parity_);
    return ring_ + at_ * kSlotBytes;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  __device__ __forceinline__ void fetch() {
    if (item_ < count_) {
      if (threadIdx.x % 32 == 0) {
        uint64_t* full = full_ + at_;
        arrive_expecting(full, kSlotBytes);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const int64_t apart = static_cast<int64_t>(f_.tiles) * f_.units * kSize;  // from gate to up
          copy_bulk(ring_ + at_ * kSlotBytes + tile * kSize, from_ + tile * apart, kSize, full);
        }
      }
      from_ += kSize;
      if (--left_ == 0) {
        item_ += kRingWarps;
        enter();
      }
    }
    if (++at_ < f_.slots) return;
    at_ = 0;
    if (filled_) parity_ ^= 1;
    filled_ = true;
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
  uint8_t* ring_;
  uint64_t* full_;
  const uint8_t* from_ = nullptr;
  int item_, count_, left_ = 0;
  int at_ = 0;  // slot to fill or read next
  uint32_t parity_ = 0;
  bool filled_ = false;
};

}  // namespace millrace
