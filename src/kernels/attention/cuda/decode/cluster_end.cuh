// End of a segment in a cluster: each block sends the others their shares of the columns.
#pragma once

#include "kernels/attention/cuda/decode/sums.cuh"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

#if __CUDA_ARCH__ >= 900
// Distribution of `items` over the blocks of a cluster: `each` to a block, cyclically.
struct Shares {
  int items, shift, each, at_once;
  __device__ Shares(int all, int threads, int ranks) {
    items = all;
    shift = 31 - __clz(ranks);
    each = min(threads, items) >> shift;
    at_once = each * ranks;
  }
};

template <class Config>
class ClusterEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // per row
  static constexpr int kSentBytes = 24;

 public:
  __device__ ClusterEnd(const DecodeParams& p, float* space, void* barrier)
      : p_(p), o_(space), received_(shared_address(barrier)) {}

  // Announces the bytes that the other blocks of the cluster will send.
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
  // This block's receive buffer is free. The others may send once all of the cluster have arrived here.
  __device__ void allow_sums() const {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }

  // The warps store their sums in their stages, which are free by now. Each block receives its share of the columns of
  // all sums and adds them up; no block waits for more than its share. `warp_bytes` is the distance between the stages
  // of two warps.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, unsigned char* stages, int warp_bytes, int rank) {
    const int ranks = p_.ranks, thread = static_cast<int>(threadIdx.x);
    const Shares shares(s.rows * kFours, Config::kThreads, ranks);
    __syncwarp();
    leave_sums(sums, s, part_at(stages + thread / 32 * warp_bytes));
    __syncthreads();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // the other blocks have started
    if (thread < shares.at_once) {
      const int to = thread / shares.each;
      for (int item = thread; item < shares.items; item += shares.at_once) {
        const PairSum sum = add_warps_of(stages, warp_bytes, item / kFours, item % kFours * 4);
        send(sum, item + (rank - to) * shares.each, to);
      }
    }
    wait_for_sums();
    p_.stamps.mark_first(kMet);
    const int source = thread & (ranks - 1), own = thread >> shares.shift;  // ranks is a power of two
    for (int first = 0; first < shares.items; first += shares.at_once) {
      const int item = first + rank * shares.each + own;
      const bool is_one = own < shares.each && item < shares.items;
      PairSum sum;
      if (is_one) sum = received(first + source * shares.each + own);
      sum.add_neighbours(ranks);
      if (is_one && source == 0) store_result<kDim>(p_, s, item / kFours, item % kFours * 4, sum);
    }
  }

 private:
  __device__ static PairPart part_at(unsigned char* space) {
    return {reinterpret_cast<float*>(space), reinterpret_cast<float2*>(space + kTileRows * Config::kMergeStride * 4)};
  }

  __device__ static void leave_sums(const RowSums<kDim>& sums, const Segment& s, const PairPart& part) {
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

  // Four columns of a row, summed over the warps of this block.
  __device__ static PairSum add_warps_of(unsigned char* stages, int warp_bytes, int row, int column) {
    PairSum sum;
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) {
      sum.largest = fmaxf(sum.largest, part_at(stages + w * warp_bytes).rows[row].x);
    }
#pragma unroll 2
    for (int w = 0; w < Config::kWarps; ++w) {
      const PairPart part = part_at(stages + w * warp_bytes);
      const float4 o = *reinterpret_cast<const float4*>(part.o + Config::merge_at(row, column));
      const float factor = exp2_fast(part.rows[row].x - sum.largest);
      sum.total += part.rows[row].y * factor;
      sum.o.x += o.x * factor, sum.o.y += o.y * factor, sum.o.z += o.z * factor, sum.o.w += o.w * factor;
    }
    return sum;
  }

  __device__ void wait_for_sums() const {
    asm volatile(
        "{\n.reg .pred done;\nretry:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@done bra finished;\nbra retry;\nfinished:\n}" ::"r"(received_)
        : "memory");
  }

  // Layout of the receive buffer: all vectors of four, then the largest scores and totals.
  __device__ void send(const PairSum& sum, int place, int rank) const {
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

  __device__ PairSum received(int place) const {
    const float2 row = reinterpret_cast<const float2*>(o_ + Config::kReceived * 4)[place];
    return {row.x, row.y, reinterpret_cast<const float4*>(o_)[place]};
  }

  const DecodeParams& p_;
  float* o_;           // received data: vectors of four, then largest scores and totals
  uint32_t received_;  // barrier for the received data
};
#endif

}  // namespace millrace
