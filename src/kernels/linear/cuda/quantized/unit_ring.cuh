// A warp's stream of packed units: a ring in shared memory that it fills and empties alone, so that warps need not wait
// for each other.
#pragma once

#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"

namespace millrace {

inline constexpr int kRingWarps = 16;  // that share the tiles of a block

// The same in all lanes, and the compiler knows: branches on it are not divergent.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }

// Tiles shared out in order: the first `more` sharers have one more than `each`. The division is the host's, since
// nothing is fetched before it is done.
struct TileShares {
  int each, more;
  static TileShares of(int64_t tiles, int64_t sharers) {
    return {static_cast<int>(tiles / sharers), static_cast<int>(tiles % sharers)};
  }
  __device__ __forceinline__ int first(int sharer) const { return sharer * each + min(sharer, more); }
  __device__ __forceinline__ int count(int sharer) const { return each + (sharer < more ? 1 : 0); }
};

// Where a warp is on its way: it takes every sixteenth unit of all the tiles of its block. What it takes of one tile
// is the same modulo sixteen. advance() returns how many tiles were left behind.
enum class UnitOrder {
  Any,
  Stays,  // units divide sixteen: all of a warp's units have the same columns
  Long,   // sixteen or more
};
// 16 / v of a power of two up to sixteen, since divisions are long and nothing is fetched before this one.
__device__ __forceinline__ int sixteenth(int v) { return v > 8 ? 1 : v > 4 ? 2 : v > 2 ? 4 : v > 1 ? 8 : 16; }

template <UnitOrder kOrder = UnitOrder::Any>
struct UnitPlace {
  int tile, unit;
  int whole;  // tiles that sixteen units are

  __device__ __forceinline__ UnitPlace(int first, int units)
      : tile(kOrder == UnitOrder::Long    ? 0
             : kOrder == UnitOrder::Stays ? first * sixteenth(units) / kRingWarps
                                          : first / units),
        unit(first - tile * units),
        whole(kOrder == UnitOrder::Long    ? 0
              : kOrder == UnitOrder::Stays ? sixteenth(units)
                                           : kRingWarps / units) {}
  // Without a loop.
  __device__ __forceinline__ int advance(int units) {
    tile += whole;
    if constexpr (kOrder == UnitOrder::Stays) return whole;
    unit += kRingWarps - whole * units;
    const bool wraps = unit >= units;
    unit -= wraps ? units : 0;
    tile += wraps ? 1 : 0;
    return whole + (wraps ? 1 : 0);
  }
};

// kRoom: bytes for the rings of a block. Lanes copy sixteen bytes each; a group of copies is a unit.
template <DType kFormat, int kRoom, UnitOrder kOrder = UnitOrder::Any>
class UnitRing {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize;
  static constexpr int kSlots = kRoom / (kRingWarps * kSize);
  static_assert(kSlots >= 1);

  // A block's tiles of `units` units from `first` on, which lie `tile_units` apart. A warp that has fewer units than
  // kSlots needs room only for those: `slots`.
  __device__ __forceinline__ UnitRing(const uint8_t* first, int units, int tile_units, int tiles, uint8_t* rings,
                                      int slots = kSlots)
      : ring_(rings + warp_index() * slots * kSize),
        next_(warp_index(), units),
        units_(units),
        tiles_(tiles),
        skipped_(static_cast<int64_t>(tile_units - units) * kSize) {
    from_ = first + (static_cast<int64_t>(next_.tile) * tile_units + next_.unit) * kSize + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) fetch();
  }

  // The unit that has come; refill() when all lanes have read it.
  __device__ __forceinline__ const uint8_t* wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
    return ring_ + at_ * kSize;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  // The last groups are empty: whoever waits counts groups.
  __device__ __forceinline__ void fetch() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool live = next_.tile < tiles_;
    // Through a register that the compiler cannot see into: of a sum of a uniform address and the lane's it makes one
    // operand of LDGSTS, which together with a cache hint is an illegal instruction (CUDA 13.0, sm_90a).
    uint32_t to = shared_address(ring_ + at_ * kSize) + static_cast<uint32_t>(lane * 16);
    asm volatile("" : "+r"(to));
#pragma unroll
    for (int i = 0; i < kSize; i += 512) {
      copy_if(live && (i + 512 <= kSize || i + lane * 16 < kSize), to + static_cast<uint32_t>(i), from_ + i);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    from_ += kRingWarps * kSize + next_.advance(units_) * skipped_;
    at_ = at_ + 1 == kSlots ? 0 : at_ + 1;
  }

  // Without a branch.
  __device__ __forceinline__ void copy_if(bool live, uint32_t to, const uint8_t* from) const {
    asm volatile(
        "{\n.reg .pred live;\nsetp.ne.b32 live, %3, 0;\n"
        "@live cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n}" ::"r"(to),
        "l"(from), "l"(policy_), "r"(static_cast<int>(live))
        : "memory");
  }

  const uint8_t* from_;  // the lane's first bytes of the next unit
  uint8_t* ring_;
  UnitPlace<kOrder> next_;
  int units_, tiles_;
  int64_t skipped_;  // bytes of a tile that are others'
  int at_ = 0;       // the slot that is filled or read next
  uint64_t policy_ = evict_first_policy();
};

}  // namespace millrace
