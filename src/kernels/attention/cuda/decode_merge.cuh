// The end of a segment of decode attention: the warps' sums become one; several blocks' sums of a pair become its
// result.
#pragma once

#include "kernels/attention/cuda/decode.cuh"

namespace millrace {

// The blocks whose ranges share a pair: `first` and those that follow it.
struct Contributors {
  int first = 0, count = 1;
};

// A block's part of a pair that blocks share evenly: it is left for block `to`, or it ends the pair, and the parts of
// `count` blocks from `first` on are added.
struct PairShare {
  int to = -1, first = 0, count = 0;
};

// How the blocks of a cluster divide `items`: `each` of them to a block, again and again.
struct Shares {
  int items, shift, each, at_once;
  __device__ Shares(int all, int threads, int ranks) {
    items = all;
    shift = 31 - __clz(ranks);
    each = min(threads, items) >> shift;
    at_once = each * ranks;
  }
};

__device__ inline void store4(const CudaMatrix& to, int64_t index, float4 v) {
  if (to.dtype == DType::F32) {
    reinterpret_cast<float4*>(to.data)[index / 4] = v;
  } else if (to.dtype == DType::F16) {
    reinterpret_cast<uint2*>(to.data)[index / 4] = {pack<__half>(v.x, v.y), pack<__half>(v.z, v.w)};
  } else {
    reinterpret_cast<uint2*>(to.data)[index / 4] = {pack<__nv_bfloat16>(v.x, v.y), pack<__nv_bfloat16>(v.z, v.w)};
  }
}

template <class Config>
class SegmentEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // of a row

 public:
  __device__ SegmentEnd(const DecodeParams& p, float* space)
      : p_(p), o_(space), rows_(reinterpret_cast<float2*>(space + Config::kMergeFloats)) {
    last_arrived_ = reinterpret_cast<int*>(rows_ + Config::kWarps * kTileRows);
    received_ = shared_address(last_arrived_) + 8;
  }

  // For one of several blocks on the line: the result, or this block's part of it in global memory.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, const Contributors& blocks) {
    Part part;
    if (blocks.count > 1) {
      const int64_t slot = static_cast<int64_t>(blockIdx.x) * 2 + (s.from_start ? 1 : 0);
      part = {p_.partials + slot * kTileRows * kDim, p_.summaries + slot * kTileRows};
    }
    merge_warps(sums, s, part);
    if (blocks.count > 1) arrive(s, blocks);
  }

  // For a block that stays. Each leaves one part at most.
  __device__ void finish_share(RowSums<kDim>& sums, const Segment& s, const PairShare& share) {
    Part part;
    if (share.to >= 0) part = part_of(static_cast<int>(blockIdx.x));
    OtherParts others(*this, s, share);
    merge_warps(sums, s, part, others);
    if (threadIdx.x != 0) return;
    if (share.count > 0) p_.counters[blockIdx.x] = 0;  // all of the block have seen it
    if (share.to >= 0) {
      __threadfence();  // for all of the block, which has met
      atomicAdd(p_.counters + share.to, 1);
    }
  }

#if __CUDA_ARCH__ >= 900
  // What the other blocks of the cluster will send to this one.
  __device__ void expect_sums(const Segment& s, int rank) const {
    if (threadIdx.x == 0) {
      const Shares shares(s.rows * kFours, Config::kThreads, p_.ranks);
      int own = 0;
#pragma unroll 1
      for (int first = rank * shares.each; first < shares.items; first += shares.at_once) {
        own += min(shares.each, shares.items - first);
      }
      asm volatile(
          "mbarrier.init.shared.b64 [%0], 1;\nmbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
          "fence.mbarrier_init.release.cluster;" ::"r"(received_),
          "r"(own * p_.ranks * kSentBytes)
          : "memory");
    }
  }
  // The space is free: they may, once all of the cluster have been here.
  __device__ void allow_sums() const {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }

  // For a block of a cluster: its warps leave their sums in their stages, which are free by now, and every block gets
  // its share of the columns of their sum at once; each adds up what it was sent, and nobody waits for more than that.
  // `warp_bytes` is the distance between two warps' stages.
  __device__ void finish_cluster(RowSums<kDim>& sums, const Segment& s, unsigned char* stages, int warp_bytes,
                                 int rank) {
    const int ranks = p_.ranks, thread = static_cast<int>(threadIdx.x);
    const Shares shares(s.rows * kFours, Config::kThreads, ranks);
    __syncwarp();
    leave_sums(sums, s, part_at(stages + thread / 32 * warp_bytes));
    __syncthreads();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // the others have started
    if (thread < shares.at_once) {
      const int to = thread / shares.each;
      for (int item = thread; item < shares.items; item += shares.at_once) {
        const Sum sum = add_warps_of(stages, warp_bytes, item / kFours, item % kFours * 4);
        send(sum, item + (rank - to) * shares.each, to);
      }
    }
    wait_for_sums();
    p_.stamps.mark_first(kMet);
    const int source = thread & (ranks - 1), own = thread >> shares.shift;  // ranks are a power of two
    for (int first = 0; first < shares.items; first += shares.at_once) {
      const int item = first + rank * shares.each + own;
      const bool is_one = own < shares.each && item < shares.items;
      Sum sum;
      if (is_one) sum = received(first + source * shares.each + own);
      sum.add_neighbours(ranks);
      if (is_one && source == 0) store_result(s, item / kFours, item % kFours * 4, sum.o, sum.total);
    }
  }
#endif

 private:
  struct Sum {
    float largest = kNoScore, total = 0;
    float4 o = {};

    __device__ void add(float other_largest, float other_total, float4 other) {
      const float top = fmaxf(largest, other_largest);
      const float mine = exp2_fast(largest - top), theirs = exp2_fast(other_largest - top);
      largest = top;
      total = total * mine + other_total * theirs;
      o = {o.x * mine + other.x * theirs, o.y * mine + other.y * theirs, o.z * mine + other.z * theirs,
           o.w * mine + other.w * theirs};
    }

    // Over `count` lanes that follow each other, a power of two.
    __device__ void add_neighbours(int count) {
      float top = largest;
      for (int step = 1; step < count; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      const float factor = exp2_fast(largest - top);
      largest = top;
      total *= factor;
      o = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
      for (int step = 1; step < count; step *= 2) {
        total += __shfl_xor_sync(~0u, total, step);
        o.x += __shfl_xor_sync(~0u, o.x, step);
        o.y += __shfl_xor_sync(~0u, o.y, step);
        o.z += __shfl_xor_sync(~0u, o.z, step);
        o.w += __shfl_xor_sync(~0u, o.w, step);
      }
    }
  };

  static constexpr int kSentBytes = 24;

  // Where sums go that are not yet a result: [kTileRows][kDim] and the rows' largest scores and totals. None: they are
  // one.
  struct Part {
    float* o = nullptr;
    float2* rows = nullptr;
  };

  __device__ Part part_of(int block) const {
    const int64_t slot = static_cast<int64_t>(block) * 2;
    return {p_.partials + slot * kTileRows * kDim, p_.summaries + slot * kTileRows};
  }

  // The parts of a pair that others have left for this block. Those of a thread's first four columns are asked for
  // before the block's own sums meet.
  class OtherParts {
   public:
    __device__ OtherParts(const SegmentEnd& end, const Segment& s, const PairShare& share) : end_(end), share_(share) {
      if (share.count == 0) return;
      const unsigned* counter = end.p_.counters + blockIdx.x;
      unsigned seen = 0;
      while (seen < static_cast<unsigned>(share.count)) {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      }
      const int row = static_cast<int>(threadIdx.x) / kFours;
      if (row < s.rows) first_ = sum_of(row, static_cast<int>(threadIdx.x) % kFours * 4);
    }
    __device__ void add_to(Sum& sum, int row, int column) const {
      if (share_.count == 0) return;
      const bool is_first = row * kFours + column / 4 == static_cast<int>(threadIdx.x);
      const Sum other = is_first ? first_ : sum_of(row, column);
      sum.add(other.largest, other.total, other.o);
    }

   private:
    __device__ Sum sum_of(int row, int column) const {
      Sum sum;
#pragma unroll 1
      for (int i = 0; i < share_.count; ++i) {
        const Part part = end_.part_of(share_.first + i);
        const float2 whole = __ldcg(part.rows + row);
        sum.add(whole.x, whole.y, __ldcg(reinterpret_cast<const float4*>(part.o + row * kDim + column)));
      }
      return sum;
    }

    const SegmentEnd& end_;
    const PairShare& share_;
    Sum first_;
  };
  struct NoParts {
    __device__ void add_to(Sum&, int, int) const {}
  };

  template <class Others = NoParts>
  __device__ void merge_warps(RowSums<kDim>& sums, const Segment& s, const Part& part, const Others& others = {}) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(sums.total[half]);
      if (lane % 4 == 0) rows_[warp * kTileRows + half * 8 + g] = {sums.largest[half], total};
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half * 8 >= s.rows) break;
      if (half * 8 + g < s.rows) write_warp(sums, half, warp, lane);
      __syncthreads();
      add_warps(s, half, part, others);
      __syncthreads();
    }
  }

  __device__ static Part part_at(unsigned char* space) {
    return {reinterpret_cast<float*>(space), reinterpret_cast<float2*>(space + kTileRows * Config::kMergeStride * 4)};
  }

  __device__ static void leave_sums(const RowSums<kDim>& sums, const Segment& s, const Part& part) {
    const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane / 4;
      const float total = quad_sum(sums.total[half]);
      if (row >= s.rows) continue;
      if (t == 0) part.rows[row] = {sums.largest[half], total};
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        float* to = part.o + Config::merge_at(row, n * 8 + t * 2);
        *reinterpret_cast<float2*>(to) = {sums.o[n][half * 2], sums.o[n][half * 2 + 1]};
      }
    }
  }

  // Four columns of a row, over the warps of this block.
  __device__ static Sum add_warps_of(unsigned char* stages, int warp_bytes, int row, int column) {
    Sum sum;
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) {
      sum.largest = fmaxf(sum.largest, part_at(stages + w * warp_bytes).rows[row].x);
    }
#pragma unroll 2
    for (int w = 0; w < Config::kWarps; ++w) {
      const Part part = part_at(stages + w * warp_bytes);
      const float4 o = *reinterpret_cast<const float4*>(part.o + Config::merge_at(row, column));
      const float factor = exp2_fast(part.rows[row].x - sum.largest);
      sum.total += part.rows[row].y * factor;
      sum.o.x += o.x * factor, sum.o.y += o.y * factor, sum.o.z += o.z * factor, sum.o.w += o.w * factor;
    }
    return sum;
  }

#if __CUDA_ARCH__ >= 900
  __device__ void wait_for_sums() const {
    asm volatile(
        "{\n.reg .pred done;\nretry:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@done bra finished;\nbra retry;\nfinished:\n}" ::"r"(received_)
        : "memory");
  }

  // Places of sums in the space where warps meet: all fours, then the largest scores and totals.
  __device__ void send(const Sum& sum, int place, int rank) const {
    uint32_t fours, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(fours) : "r"(shared_address(o_)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(received_), "r"(rank));
    const uint32_t rows = fours + Config::kReceived * 16 + place * 8;
    fours += place * 16;
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(fours),
        "f"(sum.o.x), "f"(sum.o.y), "f"(sum.o.z), "f"(sum.o.w), "r"(barrier)
        : "memory");
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(rows),
                 "f"(sum.largest), "f"(sum.total), "r"(barrier)
                 : "memory");
  }
#endif
  __device__ Sum received(int place) const {
    const float2 row = reinterpret_cast<const float2*>(o_ + Config::kReceived * 4)[place];
    return {row.x, row.y, reinterpret_cast<const float4*>(o_)[place]};
  }

  __device__ float2 whole_row(int row) const {  // its largest score and its total over the warps
    float largest = kNoScore, total = 0;
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) largest = fmaxf(largest, rows_[w * kTileRows + row].x);
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) {
      const float2 part = rows_[w * kTileRows + row];
      total += part.y * exp2_fast(part.x - largest);
    }
    return {largest, total};
  }

  __device__ void write_warp(const RowSums<kDim>& sums, int half, int warp, int lane) {
    const int g = lane / 4, t = lane % 4;
    const float factor = exp2_fast(sums.largest[half] - whole_row(half * 8 + g).x);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      float* to = o_ + Config::merge_at(warp * Config::kMergeRows + g, n * 8 + t * 2);
      *reinterpret_cast<float2*>(to) = {sums.o[n][half * 2] * factor, sums.o[n][half * 2 + 1] * factor};
    }
  }

  template <class Others>
  __device__ void add_warps(const Segment& s, int half, const Part& part, const Others& others) {
    const int count = min(8, s.rows - half * 8) * kFours;
    for (int i = threadIdx.x; i < count; i += Config::kThreads) {
      const int row = i / kFours, column = i % kFours * 4;
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < Config::kWarps; ++w) {
        const float* from = o_ + Config::merge_at(w * Config::kMergeRows + row, column);
        const float4 mine = *reinterpret_cast<const float4*>(from);
        sum.x += mine.x, sum.y += mine.y, sum.z += mine.z, sum.w += mine.w;
      }
      const float2 whole = whole_row(half * 8 + row);
      if (part.o == nullptr) {
        Sum all{whole.x, whole.y, sum};
        others.add_to(all, half * 8 + row, column);
        store_result(s, half * 8 + row, column, all.o, all.total);
      } else {
        *reinterpret_cast<float4*>(part.o + (half * 8 + row) * kDim + column) = sum;
        if (column == 0) part.rows[half * 8 + row] = whole;
      }
    }
  }

  __device__ void store_result(const Segment& s, int tile_row, int column, float4 sum, float total) const {
    const int index = s.first_row_of_tile + tile_row;
    const RowAndHead at(p_, s, index);
    const int64_t row = s.slice.first_row + at.row, head = s.kv_head * p_.group + at.head;
    const float factor = 1 / total;
    store4(p_.args.out, row * p_.args.out.stride + head * kDim + column,
           {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor});
  }

  // The last block to get here finds all partial results of the pair, and the counter is zero again.
  __device__ void arrive(const Segment& s, const Contributors& blocks) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();  // for all of the block: the barrier before it hands their writes over
      const int tile = s.first_row_of_tile / kTileRows;
      unsigned* counter =
          p_.counters + static_cast<int64_t>(s.sequence) * p_.pairs_per_sequence + tile * p_.kv_heads + s.kv_head;
      const unsigned others = static_cast<unsigned>(blocks.count - 1);
      *last_arrived_ = atomicInc(counter, others) == others;
      __threadfence();
    }
    __syncthreads();
    if (*last_arrived_ != 0) combine(s, blocks);
    __syncthreads();
  }

  // Each thread adds up four columns of a row; where rows are few, groups of threads share the partial results.
  __device__ void combine(const Segment& s, const Contributors& blocks) {
    const int items = s.rows * kFours;
    const int groups = max(1, Config::kThreads / items);
    for (int first = 0; first < items; first += Config::kThreads) {
      const int item = groups > 1 ? threadIdx.x % items : first + threadIdx.x;
      const int group = groups > 1 ? threadIdx.x / items : 0;
      Sum sum;
      if (item < items && group < groups) sum = add_partials(blocks, item / kFours, item % kFours, group, groups);
      if (groups > 1) share(sum, items, groups);
      if (item < items && group == 0) store_result(s, item / kFours, item % kFours * 4, sum.o, sum.total);
    }
  }

  __device__ Sum add_partials(const Contributors& blocks, int row, int four, int group, int groups) const {
    constexpr int kAtOnce = 8;
    Sum sum;
    for (int c = group; c < blocks.count; c += groups * kAtOnce) {
      float2 rows[kAtOnce];
      float4 o[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = c + i * groups;
        rows[i] = {kNoScore, 0};
        o[i] = {};
        if (at < blocks.count) {
          const int64_t slot = static_cast<int64_t>(blocks.first + at) * 2 + (at == 0 ? 1 : 0);
          rows[i] = __ldcg(p_.summaries + slot * kTileRows + row);
          o[i] = __ldcg(reinterpret_cast<const float4*>(p_.partials + (slot * kTileRows + row) * kDim) + four);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum.add(rows[i].x, rows[i].y, o[i]);
    }
    return sum;
  }

  __device__ void share(Sum& sum, int items, int groups) {
    Sum* space = reinterpret_cast<Sum*>(o_);
    static_assert(sizeof(Sum) * Config::kThreads <= Config::kMergeFloats * 4);
    __syncthreads();
    space[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < items) {
      for (int other = 1; other < groups; ++other) {
        const Sum& part = space[threadIdx.x + other * items];
        sum.add(part.largest, part.total, part.o);
      }
    }
    __syncthreads();
  }

  const DecodeParams& p_;
  float* o_;      // [warp][row][column]
  float2* rows_;  // [warp][row]: largest, total
  int* last_arrived_;
  uint32_t received_;  // the barrier of a cluster's sums
};

}  // namespace millrace
