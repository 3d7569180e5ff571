// The first half of a decode's adapters: inner = A x of a group of rows, divided along k over the warps of a cluster.
#pragma once

#include "kernels/lora/cuda/decode.cuh"

namespace millrace {

inline constexpr int kChunk = 32;  // columns of A that a warp multiplies at a time: 8 of each of 4 lanes
inline constexpr int kChunks = 8;  // in flight: one that is spilled would have to arrive first

// A pass computes one to four tiles of 16 rows of A. The warps of a block divide the tiles, then those of a tile divide
// k with the other blocks: one short loop for all ranks, since instructions that run once still have to be fetched.
struct ShrinkTiles {
  int log_warps;  // of a tile
  __device__ explicit ShrinkTiles(int tiles) : log_warps(tiles == 1 ? 3 : tiles == 2 ? 2 : 1) {}
  __device__ int warps() const { return 1 << log_warps; }
  __device__ int tile(int warp) const { return warp >> log_warps; }
  __device__ int part(int warp) const { return warp & (warps() - 1); }
};
static_assert(kDecodeWarps == 8 && kPassRanks == 4 * kTileRanks);

// Partial sums of this warp for its tile of A, which begins at `first_rank`. A is constant, so its first chunks are
// requested before the preceding kernel ends. `ahead()` follows them; without its branches the assembler would move
// them behind the wait.
template <class T, class Ahead>
__device__ __forceinline__ void shrink_tile(const LoraDecodeParams& p, const LoraWeights& w, int first_rank,
                                            const LoraShare& chunks, const T* x, float* sums_of_warp, Ahead ahead) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4, first_column = lane % 4 * 8;
  const uint64_t policy = evict_normal_policy();
  // The last row in the place of missing ones, whose sums nobody reads.
  const auto rank = [&](int i) { return reinterpret_cast<const T*>(w.a) + int64_t{min(i, w.rank - 1)} * p.k; };
  const T *low = rank(first_rank + row) + first_column, *high = rank(first_rank + row + 8) + first_column;
  const int behind = min(chunks.end * kChunk, p.k) - first_column;
  float sums[2][4] = {};  // two, since a product waits for the one before it that adds to the same
#pragma unroll 1
  for (int first = chunks.begin; first < chunks.end; first += kChunks) {
    uint4 lows[kChunks], highs[kChunks], xs[kChunks];
    const auto column = [&](int i) { return (first + i) * kChunk; };
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      lows[i] = load_stream_if(low + column(i), column(i) < behind, policy);
      highs[i] = load_stream_if(high + column(i), column(i) < behind, policy);
    }
    if (first == chunks.begin) ahead();
    wait_for_predecessors();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) xs[i] = load_shared_input_if(x + first_column + column(i), column(i) < behind);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      mma<T>(sums[0], lows[i].x, highs[i].x, lows[i].y, highs[i].y, xs[i].x, xs[i].y);
      mma<T>(sums[1], lows[i].z, highs[i].z, lows[i].w, highs[i].w, xs[i].z, xs[i].w);
    }
  }
  auto* to = reinterpret_cast<float2*>(sums_of_warp) + row * (kLoraGroup / 2) + lane % 4;
  to[0] = {sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]};
  to[8 * (kLoraGroup / 2)] = {sums[0][2] + sums[1][2], sums[0][3] + sums[1][3]};
}

// Partial sums of the tiles from `first_rank` on.
template <class T, class Ahead>
__device__ __forceinline__ void shrink_tiles(const LoraDecodeParams& p, const LoraWeights& w, int first_rank, int tiles,
                                             const T* x, float* of_warps, Ahead ahead) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const ShrinkTiles split(tiles);
  const LoraShare chunks((p.k + kChunk - 1) / kChunk, cluster_rank() * split.warps() + split.part(warp),
                         kLogCluster + split.log_warps);
  if (split.tile(warp) < tiles) {
    shrink_tile<T>(p, w, first_rank + split.tile(warp) * kTileRanks, chunks, x, of_warps + warp * kTileFloats, ahead);
  }
}

// Requests this block's columns of A for the L2 cache, if shrink_tile() only loads a part of them early.
template <class T>
__device__ inline void prefetch_a(const LoraDecodeParams& p, const LoraWeights& w, int tiles) {
  const LoraShare chunks((p.k + kChunk - 1) / kChunk, cluster_rank(), kLogCluster);
  if (w.rank <= kPassRanks && chunks.end - chunks.begin <= ShrinkTiles(tiles).warps() * kChunks) return;
  const int begin = chunks.begin * kChunk, end = min(p.k, chunks.end * kChunk);
  if (begin >= end) return;
#pragma unroll 1
  for (int rank = static_cast<int>(threadIdx.x); rank < w.rank; rank += kDecodeThreads) {
    prefetch_bytes(reinterpret_cast<const T*>(w.a) + int64_t{rank} * p.k + begin,
                   (end - begin) * static_cast<int>(sizeof(T)));
  }
}

// What inner is multiplied with: the scale, divided by the root mean square if x has not been. For a whole warp, which
// requests the sums of squares before other work and adds them up behind it.
class InnerFactor {
 public:
  __device__ __forceinline__ InnerFactor(const LoraDecodeParams& p, int64_t row) : p_(p) {
    if (p.squares == nullptr) return;
    from_ = p.squares + row * parts();
#pragma unroll
    for (int i = 0; i < kEarly; ++i) early_[i] = at(i * 32);
  }
  __device__ __forceinline__ float value() const {
    if (p_.squares == nullptr) return p_.scale;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEarly; ++i) sum += early_[i];
#pragma unroll 1
    for (int first = kEarly * 32; first < parts(); first += kEarly * 32) {
#pragma unroll
      for (int i = 0; i < kEarly; ++i) sum += at(first + i * 32);
    }
    return p_.scale * rsqrtf(warp_sum(sum) * p_.inverse_k + p_.epsilon);
  }

 private:
  static constexpr int kEarly = 8;  // of each lane, enough for 4096 columns
  __device__ int parts() const { return p_.k / 16; }
  __device__ __forceinline__ float at(int first) const {
    const int i = first + static_cast<int>(threadIdx.x) % 32;
    return i < parts() ? __ldcg(from_ + i) : 0;
  }
  const LoraDecodeParams& p_;
  const float* from_ = nullptr;
  float early_[kEarly] = {};
};

// The sums of this block go to all blocks of the cluster, `tiles` times 16 rows of eight.
__device__ inline void send_inner(const LoraDecodeParams& p, const LoraSums& sums, int tiles, int buffer,
                                  uint64_t* barrier) {
  const ShrinkTiles split(tiles);
  auto* to = reinterpret_cast<float2*>(sums.received + (buffer * kLoraCluster + cluster_rank()) * p.pass_floats());
  const int i = static_cast<int>(threadIdx.x), tile = i / (kTileFloats / 2), at = i % (kTileFloats / 2);
  if (tile >= tiles) return;
  const auto* of_warps = reinterpret_cast<const float2*>(sums.of_warps + tile * split.warps() * kTileFloats) + at;
  float2 sum = {0, 0};
#pragma unroll 2
  for (int warp = 0; warp < split.warps(); ++warp) {
    const float2 other = of_warps[warp * (kTileFloats / 2)];
    sum = {sum.x + other.x, sum.y + other.y};
  }
#pragma unroll
  for (int block = 0; block < kLoraCluster; ++block)
    send_cluster(cluster_address(to + i, block), sum, cluster_address(barrier, block));
}
static_assert(kDecodeThreads == kPassRanks * kLoraGroup / 2);  // a thread for each two sums

// Adds up what all blocks have sent.
__device__ inline void receive_inner(const LoraDecodeParams& p, const LoraSums& sums, int first_rank, int ranks,
                                     uint64_t* barriers) {
  const int pass = first_rank / kPassRanks, buffer = pass % 2;
  wait_barrier_cluster(barriers + buffer, static_cast<uint32_t>(pass / 2 % 2));
  const float* received = sums.received + buffer * kLoraCluster * p.pass_floats();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < ranks * kLoraGroup; i += kDecodeThreads) {
    float sum = 0;
#pragma unroll
    for (int block = 0; block < kLoraCluster; ++block) sum += received[block * p.pass_floats() + i];
    sums.inner[first_rank * kLoraGroup + i] = sum;
  }
  __syncthreads();
}

}  // namespace millrace
