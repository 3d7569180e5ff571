// The part of a chunk that depends on the state, on Hopper: the products of advance.cuh by warpgroups (four warps) with
// a task each. One carries the state from chunk to chunk, one computes the results, which nothing waits for, and one
// copies the inputs. Tensor cores read q, k and the squares of the record from shared memory, and there the state and X
// pass from the first warpgroup to the second.
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup.cuh"
#include "kernels/cuda/chunked/feed.cuh"
#include "kernels/cuda/store_matrices.cuh"

namespace millrace::chunked {

constexpr int kWarpgroupThreads = 3 * kAdvanceThreads;

// f32 accumulators as A operands, each number a sum of two bf16 numbers.
template <int kSteps>
struct Splits {
  Split at[kSteps];
};

// What the first warpgroup passes on, bf16 [columns of the state][keys] and [columns][rows of the chunk] in panels, a
// high and a low part of each; then a tile of results [rows][columns]. Offsets in bytes, behind the stages of inputs.
template <int kKeys, bool kSolved>
struct Passed {
  static constexpr uint32_t kPanel = Panels<64>::kPanelBytes, kState = kKeys / 64 * kPanel;
  static constexpr uint32_t kOfState = 2 * ChunkStage<kKeys, kSolved>::kBytes;
  static constexpr uint32_t kOfX = kOfState + 2 * kState, kResults = kOfX + 2 * kPanel;
  static constexpr uint32_t kBytes = kResults + kPanel;
};

// Meetings of the warpgroups: named barriers of the block. Those that only arrive do not wait.
enum class Meeting { Chunk = 1, State, X, Results };
template <Meeting kMeeting, int kWarpgroups>
__device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(static_cast<int>(kMeeting)), "n"(kWarpgroups * kAdvanceThreads) : "memory");
}
template <Meeting kMeeting, int kWarpgroups>
__device__ void arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(static_cast<int>(kMeeting)), "n"(kWarpgroups * kAdvanceThreads) : "memory");
}

// The pieces of 16 summed columns of an operand whose rows have these columns.
__device__ inline uint64_t columns_of(uint32_t tile, int step) {
  return moved_by(panel_descriptor(tile), step / 4 * Panels<64>::kPanelBytes + step % 4 * 32);
}

template <int kSteps>
__device__ void pass(const Splits<kSteps>& splits, uint32_t high, uint32_t low) {
  const int warp = static_cast<int>(threadIdx.x) % kAdvanceThreads / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int kt = 0; kt < kSteps; ++kt) {
    const int row = warp * kWarpColumns + lane % 16, piece = kt * 2 + lane / 16;
    store_matrices(Panels<16 * kSteps>{high}.address(row, piece), splits.at[kt].high);
    store_matrices(Panels<16 * kSteps>{low}.address(row, piece), splits.at[kt].low);
  }
  publish_to_tensor_cores();
}

// Copies the inputs: at each meeting a chunk's are complete, and the previous chunk's are no longer read.
template <int kKeys, bool kSolved>
__device__ void copy_chunks(const ChunkedParams& p, const BlockShare& share, uint32_t base) {
  copy_chunk<Panels<kKeys>, kSolved>(p, share, 0, base);
  for (int c = 0; c < share.chunks; ++c) {
    wait_copies<0>();
    publish_to_tensor_cores();
    meet<Meeting::Chunk, 3>();
    if (c + 1 < share.chunks) copy_chunk<Panels<kKeys>, kSolved>(p, share, c + 1, base);
  }
}

// Two factors of rows 8 n + within.
__device__ inline float2 factors_of(const float* factors, int kind, int n, int within) {
  return *reinterpret_cast<const float2*>(factors + kind * kChunk + n * 8 + within);
}

// S from chunk to chunk, in registers as S^T, and X of each chunk.
template <int kKeys, bool kSolved>
__device__ void carry_state(const ChunkedParams& p, const BlockShare& share, unsigned char* shared, uint32_t base) {
  using Stage = ChunkStage<kKeys, kSolved>;
  using Pass = Passed<kKeys, kSolved>;
  constexpr int kKeySteps = kKeys / 16, kRowSteps = kChunk / 16;
  const StatePart<kKeys> part(p, share);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float s[kKeys / 2];
  part.for_each(p, share, [&](int n, int i, const float* from) { s[4 * n + i] = from != nullptr ? *from : 0; });
  for (int c = 0; c < share.chunks; ++c) {
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const auto* factors = reinterpret_cast<const float*>(shared + c % 2 * Stage::kBytes + Stage::kFactors);
    Splits<kKeySteps> of_s;
#pragma unroll
    for (int kt = 0; kt < kKeySteps; ++kt) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
        of_s.at[kt].set(i, s[at], s[at + 1]);
      }
    }
    meet<Meeting::Chunk, 3>();
    pass(of_s, base + Pass::kOfState, base + Pass::kOfState + Pass::kState);
    arrive<Meeting::State, 2>();

    float known[kChunk / 2];  // S^T K^T
    if constexpr (kSolved) {
      hold(known);
      warpgroup_fence();
#pragma unroll
      for (int kt = 0; kt < kKeySteps; ++kt) {
        const uint64_t keys = columns_of(stage + Stage::kK, kt);
        warpgroup_multiply<__nv_bfloat16>(known, of_s.at[kt].high, keys, kt > 0);
        warpgroup_multiply<__nv_bfloat16>(known, of_s.at[kt].low, keys, 1);
      }
      warpgroup_commit();
    }
    float x[kChunk / 2];
#pragma unroll
    for (int kt = 0; kt < kRowSteps; ++kt) {
      uint32_t of_v[4];
      Tile<kBlockColumns>{stage + Stage::kV}.left_transposed(of_v, kt * 16, warp * kWarpColumns);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
        x[at] = __uint_as_float(of_v[i] << 16);
        x[at + 1] = __uint_as_float(of_v[i] & 0xffff0000u);
      }
    }
    if constexpr (kSolved) {
      float2 factor[kChunk / 8];
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) factor[n] = factors_of(factors, 1, n, part.within);
      warpgroup_wait<0>();
      hold(known);
      Splits<kRowSteps> of_change;
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = 4 * n + half * 2;
          of_change.at[n / 2].set(n % 2 * 2 + half, x[at] - factor[n].x * known[at],
                                  x[at + 1] - factor[n].y * known[at + 1]);
        }
      }
      hold(x);
      warpgroup_fence();
#pragma unroll
      for (int kt = 0; kt < kRowSteps; ++kt) {
        const uint64_t high = columns_of(stage + Stage::kInverse, kt);
        warpgroup_multiply<__nv_bfloat16>(x, of_change.at[kt].high, high, kt > 0);
        warpgroup_multiply<__nv_bfloat16>(x, of_change.at[kt].low, high, 1);
        warpgroup_multiply<__nv_bfloat16>(x, of_change.at[kt].high,
                                          columns_of(stage + Stage::kInverse + Stage::kSquare, kt), 1);
      }
      warpgroup_commit();
    }
    const float total = factors[3 * kChunk];
#pragma unroll
    for (float& number : s) number *= total;
    float2 factor[kChunk / 8];
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) factor[n] = factors_of(factors, 2, n, part.within);
    if constexpr (kSolved) {
      warpgroup_wait<0>();
      hold(x);
    }
    Splits<kRowSteps> scaled;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 4 * n + half * 2;
        scaled.at[n / 2].set(n % 2 * 2 + half, x[at] * factor[n].x, x[at + 1] * factor[n].y);
      }
    }
    hold(s);
    warpgroup_fence();
    const uint64_t keys = panel_descriptor(stage + Stage::kK, Panels<64>::kPanelBytes);
#pragma unroll
    for (int kt = 0; kt < kRowSteps; ++kt) {
      warpgroup_add<__nv_bfloat16>(s, scaled.at[kt].high, moved_by(keys, kt * 16 * 128));
      warpgroup_add<__nv_bfloat16>(s, scaled.at[kt].low, moved_by(keys, kt * 16 * 128));
    }
    warpgroup_commit();
    if constexpr (kSolved) {
      Splits<kRowSteps> of_x;
#pragma unroll
      for (int kt = 0; kt < kRowSteps; ++kt) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
          of_x.at[kt].set(i, x[at], x[at + 1]);
        }
      }
      pass(of_x, base + Pass::kOfX, base + Pass::kOfX + Pass::kPanel);
      arrive<Meeting::X, 2>();
    }
    warpgroup_wait<0>();
    hold(s);
  }
  part.for_each(p, share, [&](int n, int i, float* to) {
    if (to != nullptr) *to = s[4 * n + i];
  });
}

// Writes a chunk's results by rows of the tile, or number by number where they are not bf16 at multiples of 16 bytes.
__device__ inline void write_chunk(const ChunkedParams& p, const BlockShare& share, int c, uint32_t results,
                                   const float (&out)[32], int column, int within, bool active) {
  const auto at_sixteen = reinterpret_cast<uintptr_t>(p.out.data) % 16 == 0 && p.out.stride % 8 == 0;
  if (p.out.dtype != DType::BF16 || !at_sixteen) {
    if (active) write_rows(p, share, c, column, within, [&](int n, int i) { return out[4 * n + i]; });
    return;
  }
  const int thread = static_cast<int>(threadIdx.x) % kAdvanceThreads, warp = thread / 32, lane = thread % 32;
  const Tile<kBlockColumns> tile{results};
  meet<Meeting::Results, 1>();  // the previous chunk's results are written
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    uint32_t rounded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * (n + i / 2) + i % 2 * 2;
      rounded[i] = pack<__nv_bfloat16>(out[at], out[at + 1]);
    }
    store_matrices_transposed(tile.address(n * 8 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), rounded);
  }
  meet<Meeting::Results, 1>();
  const int count = share.rows_of(c), piece = thread % 8;
  if (share.first + piece * 8 >= p.value_dim) return;
  auto* to = reinterpret_cast<__nv_bfloat16*>(p.out.data) + (share.first_row + int64_t{c} * kChunk) * p.out.stride +
             share.head_column + share.first + piece * 8;
  for (int row = thread / 8; row < count; row += kAdvanceThreads / 8) {
    uint4 eight;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(eight.x), "=r"(eight.y), "=r"(eight.z), "=r"(eight.w)
                 : "r"(tile.address(row, piece))
                 : "memory");
    *reinterpret_cast<uint4*>(to + row * p.out.stride) = eight;
  }
}

// The results of each chunk, as their transposes.
template <int kKeys, bool kSolved>
__device__ void compute_results(const ChunkedParams& p, const BlockShare& share, unsigned char* shared, uint32_t base) {
  using Stage = ChunkStage<kKeys, kSolved>;
  using Pass = Passed<kKeys, kSolved>;
  const StatePart<kKeys> part(p, share);
  const int warp = static_cast<int>(threadIdx.x) % kAdvanceThreads / 32;
  const float skip = p.skip != nullptr ? p.skip[share.head] : 0;
  arrive<Meeting::Chunk, 3>();
  for (int c = 0; c < share.chunks; ++c) {
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const auto* factors = reinterpret_cast<const float*>(shared + c % 2 * Stage::kBytes + Stage::kFactors);
    float out[kChunk / 2];
    meet<Meeting::State, 2>();  // S is there, and as its warpgroup met the copies, so are they
    hold(out);
    warpgroup_fence();
#pragma unroll
    for (int kt = 0; kt < kKeys / 16; ++kt) {
      const uint64_t queries = columns_of(stage + Stage::kQ, kt);
      warpgroup_multiply<__nv_bfloat16>(out, columns_of(base + Pass::kOfState, kt), queries, kt > 0);
      warpgroup_multiply<__nv_bfloat16>(out, columns_of(base + Pass::kOfState + Pass::kState, kt), queries, 1);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(out);
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const float2 factor = factors_of(factors, 0, n, part.within);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[4 * n + i] *= i % 2 == 0 ? factor.x : factor.y;
    }
    uint32_t of_v[kChunk / 16][4];  // without the solution X is V, which is exact
    if constexpr (kSolved) {
      meet<Meeting::X, 2>();
    } else {
#pragma unroll
      for (int kt = 0; kt < kChunk / 16; ++kt) {
        Tile<kBlockColumns>{stage + Stage::kV}.left_transposed(of_v[kt], kt * 16, warp * kWarpColumns);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (2 * kt + i / 2) + i % 2 * 2;
          out[at] += skip * __uint_as_float(of_v[kt][i] << 16);
          out[at + 1] += skip * __uint_as_float(of_v[kt][i] & 0xffff0000u);
        }
      }
    }
    hold(out);
    warpgroup_fence();
#pragma unroll
    for (int kt = 0; kt < kChunk / 16; ++kt) {
      const uint64_t high = columns_of(stage + Stage::kScores, kt),
                     low = columns_of(stage + Stage::kScores + Stage::kSquare, kt);
      if constexpr (kSolved) {
        const uint64_t of_x = columns_of(base + Pass::kOfX, kt);
        warpgroup_multiply<__nv_bfloat16>(out, of_x, high, 1);
        warpgroup_multiply<__nv_bfloat16>(out, columns_of(base + Pass::kOfX + Pass::kPanel, kt), high, 1);
        warpgroup_multiply<__nv_bfloat16>(out, of_x, low, 1);
      } else {
        warpgroup_multiply<__nv_bfloat16>(out, of_v[kt], high, 1);
        warpgroup_multiply<__nv_bfloat16>(out, of_v[kt], low, 1);
      }
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(out);
    if (c + 1 < share.chunks) arrive<Meeting::Chunk, 3>();
    write_chunk(p, share, c, base + Pass::kResults, out, part.column, part.within, part.active);
  }
}

template <int kKeys, bool kSolved>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) advance_by_warpgroups(const __grid_constant__ ChunkedParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_dependents();
  wait_for_predecessors();
  const BlockShare share(p);
  const uint32_t base = shared_address(shared);
  if (threadIdx.x < kAdvanceThreads) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    carry_state<kKeys, kSolved>(p, share, shared, base);
  } else if (threadIdx.x < 2 * kAdvanceThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 128;");
    compute_results<kKeys, kSolved>(p, share, shared, base);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    copy_chunks<kKeys, kSolved>(p, share, base);
  }
#endif
}

}  // namespace millrace::chunked
