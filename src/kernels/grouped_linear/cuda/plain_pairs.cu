// 16-bit weights for one to a few tokens: each warp multiplies whole rows of a pair's matrix and streams them at the
// memory's bandwidth. With `sum` a warp owns a column of a row of y and takes the row's pairs in order, so that no
// second kernel adds them up.
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kStep = 256;  // elements of a row that a warp loads at once
constexpr int kPairSteps = 4, kSumSteps = 3;
constexpr int kMostShared = 96 * 1024;

template <class T>
__device__ __forceinline__ float dot_eight(uint4 a, uint4 b, float sum) {
  const uint32_t from_a[4] = {a.x, a.y, a.z, a.w}, from_b[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = unpack2<T>(from_a[i]), v = unpack2<T>(from_b[i]);
    sum = fmaf(u.x, v.x, sum);
    sum = fmaf(u.y, v.y, sum);
  }
  return sum;
}

// The lane's part of kRows rows of weights, kSteps loads of each in flight. A row that is not live is not read.
template <class T, int kRows, int kSteps>
struct RowsAhead {
  static constexpr int kColumns = kSteps * kStep;
  const T* rows[kRows];
  bool live[kRows];
  int k;
  uint4 weights[kRows][kSteps];

  __device__ __forceinline__ void load(int first) {
    const uint64_t policy = evict_first_policy();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s * kStep;
        weights[r][s] = load_stream_if(rows[r] + at, live[r] && at < k, policy);
      }
    }
  }

  // Adds the products with x, which lies in shared memory and has zeros up to a multiple of kColumns. The first
  // kColumns columns were loaded.
  __device__ __forceinline__ void multiply(const T* x, float (&sums)[kRows]) {
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 1
    for (int first = lane_column(); first < k; first += kColumns) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          sums[r] = dot_eight<T>(weights[r][s], *reinterpret_cast<const uint4*>(x + first + s * kStep), sums[r]);
        }
      }
      load(first + kColumns);
    }
  }

  static __device__ __forceinline__ int lane_column() { return static_cast<int>(threadIdx.x) % 32 * 8; }
};

// Copies `count` rows of x from row `first` on into shared memory, each padded with zeros to `padded` elements. They
// are there after wait_copies<0>() and a barrier.
template <class T>
__device__ __forceinline__ void stage_x(const GroupedParams& p, int first, int count, int padded, T* to) {
  for (int i = static_cast<int>(threadIdx.x) * 8; i < count * padded; i += kThreads * 8) {
    const int row = i / padded, at = i % padded;
    const T* x = reinterpret_cast<const T*>(p.x);
    copy_if(to + i, at < p.k ? x + (first + row) * p.x_stride + at : x, at < p.k);
  }
  commit_copies();
}

// Block (i, j): outputs from j * kWarps * kEach on of pair order[i]. Pairs of one group are neighbours, so that its
// rows come from the cache after the first read. The weights are requested before x.
template <class T, bool kGated>
__global__ void __launch_bounds__(kThreads, kGated ? 3 : 2)
    multiply_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kRows = 2, kEach = kGated ? 1 : kRows;  // kEach: outputs of a warp
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  wait_and_let_next_kernel_start();
  const int pair = p.order != nullptr ? p.order[blockIdx.x] : static_cast<int>(blockIdx.x), group = p.group_of(pair);
  if (group < 0) return;
  const int first = (static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kEach;
  const int second = kGated ? p.half + first : first + 1;
  const T* matrix = reinterpret_cast<const T*>(p.matrix(group));
  RowsAhead<T, kRows, kPairSteps> rows;
  rows.k = p.k;
  rows.live[0] = first < p.outputs;
  rows.live[1] = kGated ? rows.live[0] : second < p.outputs;
  rows.rows[0] = matrix + (rows.live[0] ? first : 0) * stride;
  rows.rows[1] = matrix + (rows.live[1] ? second : 0) * stride;
  rows.load(rows.lane_column());
  stage_x(p, p.x_row(pair), 1, (p.k + rows.kColumns - 1) / rows.kColumns * rows.kColumns, x);
  wait_copies<0>();
  __syncthreads();
  if (!rows.live[0]) return;
  float sums[kRows];
  rows.multiply(x, sums);
  sums[0] = warp_sum(sums[0]);
  sums[1] = warp_sum(sums[1]);
  if (threadIdx.x % 32 != 0) return;
  store_pair(p, pair, group, first, sums[0], sums[1]);
  if (!kGated && rows.live[1]) store_pair(p, pair, group, first + 1, sums[1], 0);
}

// A pair of a block with `sum`.
struct PairOfRow {
  const std::byte* matrix;  // null: it is elsewhere, and the pair is skipped
  int group;
  float weight;
};

// A place in the rows that make a column of y: those of all pairs, one behind the other, in pieces of kPiece elements.
constexpr int kPiece = kSumSteps * kStep;
struct PiecePlace {
  int pair = 0, at = 0;

  __device__ __forceinline__ void advance(int k) {
    at += kPiece;
    if (at >= k) at = 0, ++pair;
  }
};

// A lane's part of a piece.
struct Piece {
  uint4 eights[kSumSteps];

  template <class T>
  __device__ __forceinline__ void load(const PairOfRow* pairs, int per_row, int64_t row, int k, PiecePlace place,
                                       uint64_t policy) {
    const auto* matrix = place.pair < per_row ? reinterpret_cast<const T*>(pairs[place.pair].matrix) : nullptr;
    const bool live = matrix != nullptr;
    const T* from = live ? matrix + row + place.at : nullptr;
#pragma unroll
    for (int s = 0; s < kSumSteps; ++s) {
      const int column = s * kStep + static_cast<int>(threadIdx.x) % 32 * 8;
      eights[s] = load_stream_if(from + column, live && place.at + column < k, policy);
    }
  }
};

// Block (i, j): columns from j * kWarps on of row i of y. A warp has kPieces pieces in flight, and requests the next
// one when it has used one up. If the routing is settled, the first ones are requested while the kernel in front still
// computes x.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) sum_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kPieces = 4;
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  const int padded = (p.k + kPiece - 1) / kPiece * kPiece, lane = static_cast<int>(threadIdx.x) % 32;
  auto* pairs = reinterpret_cast<PairOfRow*>(x + p.per_row * padded);
  const int row = static_cast<int>(blockIdx.x), first_pair = row * p.per_row;
  const int column = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const bool stores = column < p.outputs;
  begin_grouped(p);
  for (int i = static_cast<int>(threadIdx.x); i < p.per_row; i += kThreads) {
    const int group = p.group_of(first_pair + i);
    pairs[i] = {group < 0 ? nullptr : p.matrix(group), group, __ldcg(p.pair_weights + first_pair + i)};
  }
  __syncthreads();
  const uint64_t policy = evict_first_policy();
  const int64_t own_row = (stores ? column : 0) * stride;
  PiecePlace next;
  Piece pieces[kPieces];
#pragma unroll
  for (Piece& piece : pieces) {
    piece.load<T>(pairs, p.per_row, own_row, p.k, next, policy);
    next.advance(p.k);
  }
  float total = 0;
  for (int i = lane; i < p.per_row && p.bias != nullptr && stores; i += 32) {
    if (pairs[i].group >= 0) total += pairs[i].weight * p.bias[static_cast<int64_t>(pairs[i].group) * p.n + column];
  }
  wait_for_input(p);
  const float before = lane == 0 && stores ? p.y.get(row, column) : 0;
  stage_x(p, first_pair, p.per_row, padded, x);
  wait_copies<0>();
  __syncthreads();
  if (!stores) return;
  PiecePlace place;
#pragma unroll 1
  while (place.pair < p.per_row) {
#pragma unroll
    for (Piece& piece : pieces) {
      if (place.pair >= p.per_row) break;
      const PairOfRow& pair = pairs[place.pair];
      const T* from = x + place.pair * padded + place.at + lane * 8;
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kSumSteps; ++s) {
        sum = dot_eight<T>(piece.eights[s], *reinterpret_cast<const uint4*>(from + s * kStep), sum);
      }
      piece.load<T>(pairs, p.per_row, own_row, p.k, next, policy);
      if (pair.matrix != nullptr) total = fmaf(pair.weight, sum, total);  // else x may be anything
      next.advance(p.k);
      place.advance(p.k);
    }
  }
  total = warp_sum(total);
  if (lane == 0) p.y.set(row, column, before + total);
}

constexpr int64_t kPairPad = kPairSteps * kStep;

int64_t shared_bytes(int64_t k, int64_t per_row, bool sum) {
  if (!sum) return round_up(k, kPairPad) * 2;
  return per_row * (round_up(k, kPiece) * 2 + static_cast<int64_t>(sizeof(PairOfRow)));
}

class PlainPairs final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_pairs"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_plain_grouped(p) && p.k % 8 == 0 &&
           shared_bytes(p.k, p.per_row, p.sum) <= kMostShared;
  }
  // Each pair reads its whole matrix, the second and later ones of a group from the cache.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double each = 2.0 * double(p.n) * double(p.k), active = p.expected_active();
    const double again = std::max(0.0, p.expected_pairs() - active) * 0.4;
    return gpu_us(each * (active + again), hardware, p.sum ? 0.8 : 0.9);
  }
  void run(const Args& a, const Executor& executor) const override {
    check_cuda(a.weights->format == DType::BF16 ? start<__nv_bfloat16>(a, executor) : start<__half>(a, executor),
               "starting a grouped linear layer");
  }

 private:
  template <class T>
  static cudaError_t start(const Args& a, const Executor& executor) {
    GroupedParams params = grouped_params(a);
    if (a.routing.rows == 1) params.order = nullptr;  // every pair has its own group
    if (params.pairs == 0) return cudaSuccess;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const int64_t stride = packed_linear_stride(params.k);
    LaunchShape shape;
    shape.threads = kThreads;
    shape.most_shared = true;
    shape.shared_bytes = static_cast<size_t>(shared_bytes(params.k, params.per_row, a.sum));
    const int each = a.sum || a.gated ? kWarps : 2 * kWarps;
    shape.grid = dim3(static_cast<unsigned>(a.sum ? a.routing.rows : params.pairs),
                      static_cast<unsigned>(ceil_div(params.outputs, each)));
    if (a.sum) return launch_kernel(sum_pairs<T>, shape, step, params, stride);
    return a.gated ? launch_kernel(multiply_pairs<T, true>, shape, step, params, stride)
                   : launch_kernel(multiply_pairs<T, false>, shape, step, params, stride);
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_pairs() {
  static const PlainPairs kernel;
  return &kernel;
}

}  // namespace millrace
