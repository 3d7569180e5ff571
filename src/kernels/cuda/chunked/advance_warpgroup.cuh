// The part of a chunk that depends on the state, on Hopper: the products of advance.cuh by a warpgroup. They have the
// same operands in the same places; tensor cores read q, k and the squares from shared memory by themselves. Four other
// warps copy the inputs, so that the multiplying ones have their registers for the state.
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup.cuh"
#include "kernels/cuda/chunked/feed.cuh"

namespace millrace::chunked {

// f32 accumulators as A operands, each number a sum of two bf16 numbers.
template <int kSteps>
struct Splits {
  Split at[kSteps];
};

// sums += left * right^T for right [kChunk rows][16 kSteps summed columns] in panels.
template <int kSteps>
__device__ void multiply_rows(float (&sums)[32], const Splits<kSteps>& left, uint32_t right, bool add, bool low) {
  const uint64_t panel = panel_descriptor(right);
#pragma unroll
  for (int kt = 0; kt < kSteps; ++kt) {
    const uint64_t piece = moved_by(panel, kt / 4 * Panels<64>::kPanelBytes + kt % 4 * 32);
    warpgroup_multiply<__nv_bfloat16>(sums, left.at[kt].high, piece, add || kt > 0);
    if (low) warpgroup_multiply<__nv_bfloat16>(sums, left.at[kt].low, piece, 1);
  }
}

// The same for a square of the record, which has a high and a low part. exact: left has no low part.
__device__ inline void multiply_square(float (&sums)[32], const Splits<kChunk / 16>& left, uint32_t square, bool add,
                                       bool exact) {
  multiply_rows(sums, left, square, add, !exact);
  multiply_rows(sums, left, square + kChunk * kChunk * 2, true, false);
}

constexpr int kWarpgroupThreads = 2 * kAdvanceThreads;

__device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"n"(kWarpgroupThreads) : "memory"); }

// The copying warps: at each meeting a chunk's inputs are complete, and the previous chunk's are no longer read.
template <int kKeys, bool kSolved>
__device__ void copy_chunks(const ChunkedParams& p, const BlockShare& share, uint32_t stages) {
  copy_chunk<Panels<kKeys>, kSolved>(p, share, 0, stages);
  for (int c = 0; c < share.chunks; ++c) {
    wait_copies<0>();
    publish_to_tensor_cores();
    meet();
    if (c + 1 < share.chunks) copy_chunk<Panels<kKeys>, kSolved>(p, share, c + 1, stages);
  }
}

template <int kKeys, bool kSolved>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) advance_by_warpgroups(const __grid_constant__ ChunkedParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using Stage = ChunkStage<kKeys, kSolved>;
  constexpr int kKeyTiles = kKeys / 8, kRowTiles = kChunk / 8, kSteps = kChunk / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_dependents();
  wait_for_predecessors();
  const BlockShare share(p);
  const uint32_t base = shared_address(shared);
  if (threadIdx.x >= kAdvanceThreads) return copy_chunks<kKeys, kSolved>(p, share, base);
  const StatePart<kKeys> part(p, share);
  const int warp = static_cast<int>(threadIdx.x) / 32, within = part.within;
  float s[kKeyTiles * 4];
  part.for_each(p, share, [&](int n, int i, const float* from) { s[4 * n + i] = from != nullptr ? *from : 0; });
  const float skip = p.skip != nullptr ? p.skip[share.head] : 0;
  for (int c = 0; c < share.chunks; ++c) {
    meet();
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const auto* factors = reinterpret_cast<const float*>(shared + c % 2 * Stage::kBytes + Stage::kFactors);
    const auto factor_of = [&](int kind, int n) {  // of rows 8 n + within and the next one
      return *reinterpret_cast<const float2*>(factors + kind * kChunk + n * 8 + within);
    };

    // S^T K^T and S^T Q^T
    float out[kRowTiles * 4], known[kRowTiles * 4];
    Splits<kKeys / 16> of_s;
#pragma unroll
    for (int kt = 0; kt < kKeys / 16; ++kt) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
        of_s.at[kt].set(i, s[at], s[at + 1]);
      }
    }
    hold(known);
    hold(out);
    warpgroup_fence();
    if constexpr (kSolved) multiply_rows(known, of_s, stage + Stage::kK, false, true);
    warpgroup_commit();
    multiply_rows(out, of_s, stage + Stage::kQ, false, true);
    warpgroup_commit();
    warpgroup_wait<1>();
    hold(known);

    // X^T: as a thread holds S^T, with rows instead of keys
    float x[kRowTiles * 4];
    Splits<kSteps> of_change;
#pragma unroll
    for (int kt = 0; kt < kSteps; ++kt) {
      uint32_t of_v[4];
      Tile<kBlockColumns>{stage + Stage::kV}.left_transposed(of_v, kt * 16, warp * kWarpColumns);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
        x[at] = __uint_as_float(of_v[i] << 16);
        x[at + 1] = __uint_as_float(of_v[i] & 0xffff0000u);
        if constexpr (kSolved) {
          const float2 factor = factor_of(1, 2 * kt + i / 2);
          of_change.at[kt].set(i, x[at] - factor.x * known[at], x[at + 1] - factor.y * known[at + 1]);
        }
      }
    }
    if constexpr (kSolved) {
      hold(x);
      warpgroup_fence();
      multiply_square(x, of_change, stage + Stage::kInverse, false, false);
      warpgroup_commit();
    }
    const float total = factors[3 * kChunk];
#pragma unroll
    for (float& number : s) number *= total;
    warpgroup_wait<0>();
    hold(x);
    hold(out);

    // The parts of X in the output and in the state
    Splits<kSteps> of_x, scaled;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float2 of_out = factor_of(0, n), of_state = factor_of(2, n);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 4 * n + half * 2, i = n % 2 * 2 + half;
        out[at] *= of_out.x;
        out[at + 1] *= of_out.y;
        if constexpr (!kSolved) out[at] += skip * x[at], out[at + 1] += skip * x[at + 1];
        of_x.at[n / 2].set(i, x[at], x[at + 1]);
        scaled.at[n / 2].set(i, x[at] * of_state.x, x[at + 1] * of_state.y);
      }
    }
    hold(s);
    hold(out);
    warpgroup_fence();
    const uint64_t keys = panel_descriptor(stage + Stage::kK, Panels<64>::kPanelBytes);
#pragma unroll
    for (int kt = 0; kt < kSteps; ++kt) {
      const uint64_t piece = moved_by(keys, kt * 16 * 128);
      warpgroup_add<__nv_bfloat16>(s, scaled.at[kt].high, piece);
      warpgroup_add<__nv_bfloat16>(s, scaled.at[kt].low, piece);
    }
    multiply_square(out, of_x, stage + Stage::kScores, true, !kSolved);
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(s);
    hold(out);
    if (part.active) {
      write_rows(p, share, c, part.column, within, [&](int n, int i) { return out[4 * n + i]; });
    }
  }
  part.for_each(p, share, [&](int n, int i, float* to) {
    if (to != nullptr) *to = s[4 * n + i];
  });
#endif
}

}  // namespace millrace::chunked
