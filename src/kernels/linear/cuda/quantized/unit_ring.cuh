// A warp's stream of packed units: a ring in shared memory that only this warp fills and empties, so that warps need
// not wait for each other.
#pragma once

#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"

namespace millrace {

inline constexpr int kRingWarps = 16;  // warps that share the tiles of a block

// The shuffle tells the compiler that all lanes have the same value, so that branches on it are not divergent.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }

// Distribution of tiles in order: the first `more` blocks have one more than `each`. The host divides, since a division
// on the device would delay the first fetch.
struct TileShares {
  int each, more;
  static TileShares of(int64_t tiles, int64_t sharers) {
    return {static_cast<int>(tiles / sharers), static_cast<int>(tiles % sharers)};
  }
  __device__ __forceinline__ int first(int sharer) const { return sharer * each + min(sharer, more); }
  __device__ __forceinline__ int count(int sharer) const { return each + (sharer < more ? 1 : 0); }
};

// A warp's position: it takes every 16th unit of all tiles of its block, so the units of each tile that it takes are
// equal modulo 16. advance() returns the number of tiles completed.
enum class UnitOrder {
  Any,
  Stays,  // the units of a tile divide 16: all units of a warp have the same columns
  Long,   // 16 units or more per tile
};
// 16 / v for a power of two up to 16: a division would delay the first fetch.
__device__ __forceinline__ int sixteenth(int v) { return v > 8 ? 1 : v > 4 ? 2 : v > 2 ? 4 : v > 1 ? 8 : 16; }

template <UnitOrder kOrder = UnitOrder::Any>
struct UnitPlace {
  int tile, unit;
  int whole;  // whole tiles in 16 units

  __device__ __forceinline__ UnitPlace(int first, int units)
      : tile(kOrder == UnitOrder::Long    ? 0
             : kOrder == UnitOrder::Stays ? first * sixteenth(units) / kRingWarps
                                          : first / units),
        unit(first - tile * units),
        whole(kOrder == UnitOrder::Long    ? 0
              : kOrder == UnitOrder::Stays ? sixteenth(units)
                                           : kRingWarps / units) {}
  // Has no loop.
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

// kRoom: bytes for the rings of a block. Each lane copies 16 bytes at a time; a cp.async group is one unit.
template <DType kFormat, int kRoom, UnitOrder kOrder = UnitOrder::Any>
class UnitRing {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize;
  static constexpr int kSlots = kRoom / (kRingWarps * kSize);
  static_assert(kSlots >= 1);

  // A block's tiles, `units` units of each from `first` on, `tile_units` apart. A warp with fewer units than kSlots
  // needs only `slots` slots.
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

  // The oldest unit in flight. Call refill() after all lanes have read it.
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
  // Commits empty groups at the end, because wait() counts groups.
  __device__ __forceinline__ void fetch() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool live = next_.tile < tiles_;
    // The empty asm hides the address from the compiler: it would fold uniform base and lane offset into one LDGSTS
    // operand, which together with a cache hint is an illegal instruction (CUDA 13.0, sm_90a).
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

  // Has no branch.
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
  int64_t skipped_;  // bytes of a tile that belong to other blocks
  int at_ = 0;       // slot to fill or read next
  uint64_t policy_ = evict_first_policy();
};

}  // namespace millrace
