// Common to the decode kernels: a warp's arithmetic over its units, and the block's shared memory.
#pragma once

#include "kernels/attention/cuda/decode/loader.cuh"
#include "kernels/attention/cuda/decode/rows.cuh"
#include "kernels/attention/cuda/decode/weigh.cuh"

namespace millrace {

// One warp's arithmetic over its units of a segment, while its loader runs ahead.
template <class T, class Config, class Walk>
struct WarpStream {
  static constexpr int kDim = Config::kDim;
  const DecodeParams& p;
  UnitLoader<T, Config, Walk>& loader;
  uint32_t stages;
  int stage;

  __device__ void start(int issued = 0) {
    stage = 0;
    for (int i = issued; i < stage_count<Config>(p); ++i) loader.issue();
  }

  // The first start has two parts: loads that may precede the end of the previous kernels, and the rest. With new rows
  // that attention stores itself, no kernel of this step has written to the pages, and the rest need not wait either:
  // FreshRow replaces the one stale row.
  __device__ int start_early(bool early) {
    const int issued = early ? loader.issue_old() : 0;
    p.stamps.mark_first(kAsked);
    return issued;
  }
  __device__ void start_after(int issued) {
    const bool all_old = stores_rows<Config>(p);
    if (all_old) start(issued);
    wait_for_predecessors();
    p.stamps.mark_first(kWaited);
    if (!all_old) start(issued);
  }

  // Waits for the keys (1) or the values (2) of the oldest unit: each unit is two groups of copies.
  template <int kWhich>
  __device__ void wait_for_unit() const {
    if (p.deep) {
      wait_copies<4 * Config::kStages - kWhich>();
    } else {
      wait_copies<2 * Config::kStages - kWhich>();
    }
    __syncwarp();
  }

  // The unit as rows of 16-bit numbers. Rows outside the mask may hold anything; they become zeros.
  __device__ uint32_t expanded(uint32_t stored, int unit, const Segment& s) const {
    if constexpr (Config::kStore == KvStore::Plain) {
      return stored;
    } else {
      using Rows = SwizzledRows<kDim>;
      const uint32_t to = stages - Config::kExpandedBytes;
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int i = 0; i < kUnit * Rows::kPieces / 32; ++i) {
        const int row = (i * 32 + lane) / Rows::kPieces, piece = (i * 32 + lane) % Rows::kPieces;
        put_eight(to + Rows::offset(row, piece), StoredRows<Config::kStore, kDim>::eight(stored, row, piece));
      }
      const int until = s.slice.past + s.slice.rows - unit * kUnit;
      const int from = p.args.window > 0 ? s.slice.past - p.args.window + 1 - unit * kUnit : 0;
      if (from > 0 || until < kUnit) {
#pragma unroll 1
        for (int i = lane; i < kUnit * Rows::kPieces; i += 32) {
          const int row = i / Rows::kPieces;
          if (row < from || row >= until) put_eight(to + Rows::offset(row, i % Rows::kPieces), {});
        }
      }
      __syncwarp();
      return to;
    }
  }
  __device__ static void put_eight(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  }

  // Returns whether all row maxima stayed in the range of the unified maximum; always true for the other variants.
  template <Softmax kSoftmax>
  __device__ bool run(WarpAttention<T, Config>& attention, const FreshRow<T, Config>& fresh, const Segment& s,
                      RowSums<kDim>& sums) {
    float seen[2] = {kNoScore, kNoScore};
    sums.clear();
    for (int unit = s.begin + static_cast<int>(threadIdx.x) / 32; unit < s.end; unit += Config::kWarps) {
      const uint32_t stored = stages + stage * 2 * Config::kUnitBytes;
      float score[2][4];
      wait_for_unit<1>();
      const uint32_t keys = expanded(stored, unit, s);
      if (fresh.is_in(unit)) fresh.put_key(keys);
      attention.score_unit(keys, unit, score);
      if constexpr (kSoftmax == Softmax::Unified) {
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[i / 2] = fmaxf(seen[i / 2], fmaxf(score[0][i], score[1][i]));
      } else {
        attention.template follow_maximum<kSoftmax>(score, sums);
      }
      wait_for_unit<2>();
      if (threadIdx.x % 32 == 0)
        p.stamps.mark(kLanded + min(28, (unit - s.begin) / Config::kWarps) + static_cast<int>(threadIdx.x) / 32 * 29);
      const uint32_t values = expanded(stored + Config::kUnitBytes, unit, s);
      if (fresh.is_in(unit)) fresh.put_value(values);
      if constexpr (kSoftmax == Softmax::Unified) {
        attention.add_unit(values, score, attention.phi, sums);
      } else {
        attention.add_unit(values, score, sums.largest, sums);
      }
      __syncwarp();
      loader.issue();
      stage = stage + 1 == stage_count<Config>(p) ? 0 : stage + 1;
    }
    if constexpr (kSoftmax == Softmax::Unified) return settle(attention, seen, sums);
    return true;
  }

  __device__ static bool settle(const WarpAttention<T, Config>& attention, const float (&seen)[2],
                                RowSums<kDim>& sums) {
    bool inside = stayed_small(sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half >= attention.halves) break;
      const float largest = quad_max(seen[half]), phi = attention.phi[half];
      if (largest > kNoScore) {
        inside &= largest <= phi + UnifiedRange<T>::kAbove && largest >= phi - UnifiedRange<T>::kBelow;
        sums.largest[half] = phi;
      }
    }
    return __all_sync(~0u, inside);
  }

  // Weights far above one, though in range, times large bf16 values may overflow f32, here or when warps and blocks are
  // added up.
  __device__ static bool stayed_small(const RowSums<kDim>& sums) {
    bool small = true;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) small &= fabsf(sums.o[n][i]) < 0x1p100f;  // false for NaN
    }
    return small;
  }
};

// Processes a segment. If the unified maximum did not hold, only this warp reads its part again.
template <Softmax kSoftmax, class T, class Config, class Walk>
__device__ void run_segment(WarpStream<T, Config, Walk>& stream, WarpAttention<T, Config>& attention,
                            const FreshRow<T, Config>& fresh, const Walk& walk, const Segment& segment,
                            RowSums<Config::kDim>& sums) {
  const bool in_range = stream.template run<kSoftmax>(attention, fresh, segment, sums);
  if constexpr (kSoftmax == Softmax::Unified) {
    if (!in_range) {
      wait_copies<0>();
      __syncwarp();
      stream.loader.restart(walk);
      stream.start();
      stream.template run<Softmax::Online>(attention, fresh, segment, sums);
    }
  }
}

// Shared memory of a block: the warps' stages, queries that are kept there, the merge buffer.
template <class Config>
struct DecodeSpace {
  int warp_bytes;
  uint32_t stages;
  uint32_t queries;
  float* merge;

  __device__ DecodeSpace(const DecodeParams& p, unsigned char* shared) {
    warp_bytes = p.held_stages * 2 * Config::kUnitBytes + Config::kExpandedBytes;
    stages = shared_address(shared) + static_cast<uint32_t>(threadIdx.x) / 32 * warp_bytes + Config::kExpandedBytes;
    queries = shared_address(shared + Config::kWarps * warp_bytes);
    merge = reinterpret_cast<float*>(shared + Config::kWarps * warp_bytes + Config::kQueryBytes);
  }
};

// Called by whole blocks when the rows are in shared memory: takes each warp's queries, and the new key and value for
// the warp that reads them.
template <class T, class Config>
__device__ void take_rows(const DecodeParams& p, const Segment& s, const DecodeSpace<Config>& space,
                          WarpAttention<T, Config>& attention, FreshRow<T, Config>& fresh) {
  __syncthreads();
  attention.take_queries(s, space.queries);
  fresh.take(p, s, space.queries);
  if constexpr (!Config::kSharedQueries) __syncthreads();  // the buffer is free again
}

}  // namespace millrace
