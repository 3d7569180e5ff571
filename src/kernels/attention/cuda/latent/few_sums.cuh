// The end of latent attention for few query rows: the blocks of a cluster add up their sums through distributed shared
// memory. Each rank owns an equal share of the columns. All blocks send it their sums of these columns as soon as they
// have them, and it adds them up in the order of the ranks, so that the same launch gives the same bits.
//
// Sums travel as the products leave them: a lane has two columns of row lane / 4 and of the row eight further on.
#pragma once

#include "kernels/attention/cuda/latent/few.cuh"

namespace millrace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
using FewSums = RowSums<64>;  // of a warp

// One thread announces the bytes that the ranks will send. Called before the cluster meets.
__device__ inline void expect_few_sums(const FewSpace& space, int ranks) {
  space.received().init(1);
  space.received().expect(FewTile::kSumBytes + ranks * FewTile::kSummaryBytes);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline uint32_t address_at(const void* own, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
  return address;
}
__device__ inline void send_four(uint32_t to, float a, float b, float c, float d, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
               : "memory");
}
__device__ inline uint32_t barrier_at(const FewSpace& space, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(space.received().address()), "r"(rank));
  return address;
}

// Each warp sends its columns to the ranks that own them, and the rows' largest scores and totals to every eighth rank.
__device__ inline void send_few_sums(const FewSpace& space, const FewSums& sums, int rank, int ranks) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int shift = __clz(ranks) - 25, each = 1 << shift;  // groups of columns of a rank: kGroups / ranks
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int group = warp * 8 + n, owner = group >> shift, place = rank * each + (group & (each - 1));
    send_four(address_at(space.sums + place * 32 + lane, owner), sums.o[n][0], sums.o[n][1], sums.o[n][2], sums.o[n][3],
              barrier_at(space, owner));
  }
  if (lane % 4 != 0) return;
  for (int to = warp; to < ranks; to += FewTile::kWarps) {
    send_four(address_at(space.summaries + rank * 8 + lane / 4, to), sums.largest[0], sums.total[0], sums.largest[1],
              sums.total[1], barrier_at(space, to));
  }
}

__device__ inline void wait_for_few_sums(const FewSpace& space) {
  asm volatile(
      "{\n.reg .pred done;\nretry:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@done bra finished;\nbra retry;\nfinished:\n}" ::"r"(space.received().address())
      : "memory");
}

// Stores columns of a warp's rows: `column` counts from the head's first one; `x` has two columns of each half's row.
class FewStore {
 public:
  __device__ FewStore(const DecodeParams& p, const Segment& s, const float (&largest)[2], const float (&total)[2])
      : p_(p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = static_cast<int>(threadIdx.x) % 32, row = half * 8 + lane / 4;
      live_[half] = row < s.rows;
      const RowAndHead at(p, s, s.first_row_of_tile + (live_[half] ? row : 0));
      at_[half] = (s.slice.first_row + at.row) * p.args.out.stride + static_cast<int64_t>(at.head) * FewTile::kLatent +
                  lane % 4 * 2;
      factor_[half] = 1 / with_sink(p.args, at.head, total[half], largest[half]);
    }
  }
  __device__ void put(int column, float4 x) const {
    with_device_type(p_.args.out.dtype, [&](auto type) {
      using Out = decltype(type);
      Out* out = static_cast<Out*>(p_.args.out.data) + column;
      if (live_[0]) put_two(out + at_[0], x.x * factor_[0], x.y * factor_[0]);
      if (live_[1]) put_two(out + at_[1], x.z * factor_[1], x.w * factor_[1]);
      return 0;
    });
  }

 private:
  template <class Out>
  static __device__ void put_two(Out* to, float a, float b) {
    *reinterpret_cast<Vector<Out, 2>*>(to) = {from_float<Out>(a), from_float<Out>(b)};
  }

  const DecodeParams& p_;
  bool live_[2];
  int64_t at_[2];
  float factor_[2];
};

// This rank's columns of all rows. Every warp takes every eighth group of columns.
template <int kRanks>
__device__ void add_few_sums(const DecodeParams& p, const Segment& s, const FewSpace& space, int rank) {
  constexpr int kEach = FewTile::kGroups / kRanks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float4 rows[kRanks];  // largest, total of the first row; of the second
  float largest[2] = {kNoScore, kNoScore}, total[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    rows[r] = space.summaries[r * 8 + lane / 4];
    largest[0] = fmaxf(largest[0], rows[r].x), largest[1] = fmaxf(largest[1], rows[r].z);
  }
  float factor[kRanks][2];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    factor[r][0] = exp2_fast(rows[r].x - largest[0]), factor[r][1] = exp2_fast(rows[r].z - largest[1]);
    total[0] += rows[r].y * factor[r][0], total[1] += rows[r].w * factor[r][1];
  }
  const FewStore store(p, s, largest, total);
#pragma unroll
  for (int group = 0; group < kEach; group += FewTile::kWarps) {
    if (group + warp >= kEach) break;
    float4 sum = {};
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const float4 x = space.sums[(r * kEach + group + warp) * 32 + lane];
      sum.x += x.x * factor[r][0], sum.y += x.y * factor[r][0];
      sum.z += x.z * factor[r][1], sum.w += x.w * factor[r][1];
    }
    store.put((rank * kEach + group + warp) * 8, sum);
  }
}

// The multiplying warps.
__device__ inline void finish_few(const DecodeParams& p, const Segment& s, const FewSpace& space, const FewSums& sums,
                                  int rank) {
  if (p.ranks == 1) {
    const FewStore store(p, s, sums.largest, sums.total);
    const int column = static_cast<int>(threadIdx.x) / 32 * 64;
#pragma unroll
    for (int n = 0; n < 8; ++n) store.put(column + n * 8, {sums.o[n][0], sums.o[n][1], sums.o[n][2], sums.o[n][3]});
    return;
  }
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // the other blocks have started
  send_few_sums(space, sums, rank, p.ranks);
  wait_for_few_sums(space);
  if (p.ranks == 2) return add_few_sums<2>(p, s, space, rank);
  if (p.ranks == 4) return add_few_sums<4>(p, s, space, rank);
  if (p.ranks == 8) return add_few_sums<8>(p, s, space, rank);
  add_few_sums<16>(p, s, space, rank);
}
#endif

}  // namespace millrace
