// Shared-memory tiles of 64 columns of 16-bit rows, filled by asynchronous copies.
//
// A row is 128 bytes. Its piece c of 16 bytes lies at position c ^ (row % 8), which is the 128-byte swizzle of the
// copy engine: ldmatrix has no bank conflicts, and warpgroup products read the same bytes. Tiles are 1024-byte aligned.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"

namespace millrace {

inline constexpr int kTileColumns = 64, kTileRowBytes = 2 * kTileColumns;

__device__ __forceinline__ uint32_t tile_offset(int row, int piece) {
  return static_cast<uint32_t>(row * kTileRowBytes + ((piece ^ (row & 7)) << 4));
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Arrives at the barrier once this thread's copies so far are complete.
__device__ __forceinline__ void arrive_with_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Makes this thread's writes to shared memory visible to warpgroup products.
__device__ __forceinline__ void publish_tile() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void load_fragment(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Copies 16 bytes to shared memory, or zeros if not `live`. Without a cache hint: ptxas adds the uniform address of a
// stage inside of the instruction, and such a copy with a hint is an illegal instruction (CUDA 13.0, sm_90a).
__device__ __forceinline__ void copy_if(void* to, const void* from, bool live) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(live ? 16 : 0)
               : "memory");
}

// One thread's copies of a tile of kRows rows: eight threads share a row.
template <class T, int kRows, int kThreads>
class TileCopies {
 public:
  static constexpr int kAtOnce = kThreads / 8, kEach = (kRows + kAtOnce - 1) / kAtOnce;
  static_assert(kAtOnce % 8 == 0 && kRows % kAtOnce == 0);

  // `row_of(i)`: address of row i, or null for a row of zeros.
  template <class RowOf>
  __device__ TileCopies(RowOf row_of, int k) : column_(static_cast<int>(threadIdx.x) % 8 * 8), k_(k) {
    const int first = static_cast<int>(threadIdx.x) / 8;
    to_ = tile_offset(first, static_cast<int>(threadIdx.x) % 8);
#pragma unroll
    for (int i = 0; i < kEach; ++i) from_[i] = row_of(first + i * kAtOnce);
  }

  // Requests columns [64 step, 64 step + 64); columns beyond k become zeros.
  __device__ __forceinline__ void start(uint8_t* tile, int step, const void* any) const {
    const int column = step * kTileColumns + column_;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool live = from_[i] != nullptr && column < k_;
      copy_if(tile + to_ + i * kAtOnce * kTileRowBytes, live ? from_[i] + column : any, live);
    }
  }

 private:
  const T* from_[kEach];
  uint32_t to_;
  int column_, k_;
};

}  // namespace millrace
