// Routes the rows of a prompt in two launches. A block has a segment of the rows. The first launch routes them and
// counts the segment's pairs of each group, the second one adds up the counts of all segments and places its own pairs.
#pragma once

#include "kernels/linear/cuda/device.cuh"
#include "kernels/router/cuda/route_row.cuh"
#include "kernels/router/cuda/sort_pairs.cuh"

namespace millrace {

inline constexpr int kSegmentWarps = 16, kSegmentThreads = 32 * kSegmentWarps;
inline constexpr int kMaskRows = 64;  // rows that a block places at once

struct Segments {
  int32_t* counts;  // [count][groups]
  int count, rows;  // rows of a segment
  int groups;
};

template <int kEach, bool kPlain>
__global__ void __launch_bounds__(kSegmentThreads, 1)
    route_segments(const __grid_constant__ CudaRouterParams p, const Segments segments) {
  using Row = RowOfExperts<kEach, kPlain>;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ int32_t counts[kMostExperts];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = static_cast<int>(blockIdx.x) * segments.rows, end = min(p.rows, begin + segments.rows);
  const int each = p.each();
  const RowScratch own(shared, p, warp);
  const typename Row::Biases biases(p);
  let_next_kernel_start();
  for (int g = static_cast<int>(threadIdx.x); g < segments.groups; g += kSegmentThreads) counts[g] = 0;
  __syncthreads();
  wait_for_previous_kernel();
  for (int row = begin + warp; row < end; row += kSegmentWarps) {
    const int64_t first = static_cast<int64_t>(row) * each;
    Row(p, row, own, biases).route(p.chosen + first, p.weights + first);
    __syncwarp();
    for (int i = lane; i < each; i += 32) atomicAdd(counts + own.chosen[i], 1);
    __syncwarp();
  }
  __syncthreads();
  int32_t* to = segments.counts + static_cast<int64_t>(blockIdx.x) * segments.groups;
  for (int g = static_cast<int>(threadIdx.x); g < segments.groups; g += kSegmentThreads) to[g] = counts[g];
}

// Thread g sorts group g.
__global__ void __launch_bounds__(kSegmentThreads)
    place_segments(const Segments segments, const int32_t* chosen, int rows, int each, int32_t* order,
                   int32_t* offsets) {
  static_assert(kSegmentThreads >= kMostExperts && kMaskRows == 64);
  __shared__ uint32_t rows_of[2][kMostExperts];  // [half of the rows][group]
  __shared__ int32_t places[kMostExperts];
  __shared__ int32_t sums[kSegmentWarps];
  const int group = static_cast<int>(threadIdx.x), segment = static_cast<int>(blockIdx.x);
  const bool live = group < segments.groups;
  rows_of[0][group] = rows_of[1][group] = 0;
  let_next_kernel_start();
  wait_for_previous_kernel();
  int before = 0, total = 0;   // pairs of the group in segments in front of this one, and in all
  constexpr int kAtOnce = 32;  // loads in flight
  for (int first = 0; first < segments.count; first += kAtOnce) {
    int counts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      counts[i] = live && first + i < segments.count ? segments.counts[(first + i) * segments.groups + group] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < segment) before += counts[i];
      total += counts[i];
    }
  }
  const int place = sum_before(total, sums);
  places[group] = place + before;
  if (segment == 0 && live) offsets[group] = place;
  if (segment == 0 && group == 0) offsets[segments.groups] = rows * each;
  const int end = min(rows, (segment + 1) * segments.rows);
  for (int row = segment * segments.rows; row < end; row += kMaskRows) {
    const int pairs = min(kMaskRows, end - row) * each, first = row * each;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kSegmentThreads) {
      const int of = i / each;
      atomicOr(&rows_of[of / 32][chosen[first + i]], 1u << of % 32);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kSegmentThreads) {
      const int of = i / each, own = chosen[first + i];
      const int below = of < 32 ? 0 : __popc(rows_of[0][own]);
      order[places[own] + below + rows_below(rows_of[of / 32][own], of % 32)] = first + i;
    }
    __syncthreads();
    places[group] += __popc(rows_of[0][group]) + __popc(rows_of[1][group]);
    rows_of[0][group] = rows_of[1][group] = 0;
  }
}

}  // namespace millrace
