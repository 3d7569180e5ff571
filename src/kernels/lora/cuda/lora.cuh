// Kernels of low-rank adapters: inner = A x, then y += B inner. What they compute for is an item: a row, or a row's
// pair with one of its experts. `Items` says which matrices an item has and where its rows of x and y lie:
//
//   int64_t count;                            of items
//   int64_t x_row(int64_t), inner_row(int64_t), y_row(int64_t)
//   LoraMatrices<T> matrices<T>(int64_t)      of an item; w null: none
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/lora/lora.h"

namespace millrace {

constexpr int kLoraThreads = 128, kLoraWarps = kLoraThreads / 32;
constexpr int kLoraDots = 4;       // rows of A of one warp at a time
constexpr int kLoraColumns = 4;    // of y, of one thread
constexpr int kLoraManyItems = 8;  // items of a block in a prompt: those of one adapter share its weights

template <class T>
struct LoraMatrices {
  const LoraWeights* w = nullptr;
  const T *a = nullptr, *b = nullptr;
  __device__ bool operator==(const LoraMatrices& other) const { return w == other.w && a == other.a; }
};

// The matrices of an adapter for expert `expert`; none if the adapter does not change the layer or the expert.
template <class T>
__device__ LoraMatrices<T> lora_matrices(const LoraWeights* table, int adapter, int64_t expert) {
  const LoraWeights* w = adapter >= 0 ? table + adapter : nullptr;
  if (w == nullptr || w->a == nullptr) return {};
  if (w->place != nullptr) expert = w->place[expert];
  if (expert < 0) return {};
  return {w, reinterpret_cast<const T*>(w->a) + expert * w->a_step,
          reinterpret_cast<const T*>(w->b) + expert * w->b_step};
}

// Calls visit(first item, items, matrices) for each run of items with the same matrices.
template <class T, int R, class Items, class Visit>
__device__ void for_lora_runs(const Items& items, int64_t first, Visit visit) {
  const auto matrices = [&](int64_t item) {
    return item < items.count ? items.template matrices<T>(item) : LoraMatrices<T>();
  };
  for (int begin = 0; begin < R;) {
    const LoraMatrices<T> m = matrices(first + begin);
    int end = begin + 1;
    while (end < R && matrices(first + end) == m) ++end;
    if (m.w != nullptr) visit(first + begin, end - begin, m);
    begin = end;
  }
}

template <int N>
struct LoraWidth {
  static constexpr int kValue = N;
};

template <class Items>
struct LoraParams {
  Items items;
  GpuMatrix x, y;
  float* inner;  // [items][stride]
  int64_t stride, k;
  float scale;  // of B inner
  bool wide;    // rows of x and A are multiples of 16 bytes
};

// inner[item] = A x. A warp computes kLoraDots rows of A for R items; each dot product is one warp's, in one order.
template <class T, int R, class Items>
__global__ void __launch_bounds__(kLoraThreads) lora_shrink(const __grid_constant__ LoraParams<Items> p) {
  allow_dependents();
  wait_for_predecessors();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_dot = (static_cast<int>(blockIdx.y) * kLoraWarps + warp) * kLoraDots;
  constexpr int kEach = 16 / sizeof(T);
  for_lora_runs<T, R>(p.items, int64_t{blockIdx.x} * R, [&](int64_t item, int count, const LoraMatrices<T>& m) {
    const T* rows[R];  // of x
#pragma unroll
    for (int r = 0; r < R; ++r) {
      rows[r] = reinterpret_cast<const T*>(p.x.data) + p.items.x_row(item + min(r, count - 1)) * p.x.stride;
    }
    const int rank = m.w->rank;
    for (int j = first_dot; j < rank; j += static_cast<int>(gridDim.y) * kLoraWarps * kLoraDots) {
      float sums[R][kLoraDots] = {};
      const auto add = [&](int64_t column, auto width) {
        constexpr int kWidth = decltype(width)::kValue;
        using Few = Vector<T, kWidth>;
        Few as[kLoraDots];
#pragma unroll
        for (int d = 0; d < kLoraDots; ++d) {
          const int at = min(j + d, rank - 1);
          as[d] = *reinterpret_cast<const Few*>(m.a + at * p.k + column);
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (r >= count) break;
          const Few xs = *reinterpret_cast<const Few*>(rows[r] + column);
#pragma unroll
          for (int d = 0; d < kLoraDots; ++d) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) sums[r][d] += to_float(xs.at[i]) * to_float(as[d].at[i]);
          }
        }
      };
      if (p.wide) {
        for (int64_t c = lane * kEach; c < p.k; c += 32 * kEach) add(c, LoraWidth<kEach>());
      } else {
        for (int64_t c = lane; c < p.k; c += 32) add(c, LoraWidth<1>());
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (r >= count) break;
#pragma unroll
        for (int d = 0; d < kLoraDots; ++d) {
          const float sum = warp_sum(sums[r][d]);
          if (lane == 0 && j + d < rank) p.inner[p.items.inner_row(item + r) * p.stride + j + d] = sum;
        }
      }
    }
  });
}

// The column of a part's B that adds to column c of y; -1: another part's.
__device__ inline int lora_column_in(const LoraWeights::Part& part, int c) {
  const int at = c - part.column;
  if (part.group == 0) return at >= 0 && at < part.cols ? at : -1;
  const int in_pair = at % (2 * part.group), own = at / (2 * part.group) * part.group + in_pair;
  return at >= 0 && in_pair < part.group && own < part.cols ? own : -1;
}

// The columns of one part's B that add to kLoraColumns columns of y from `column` on.
struct LoraColumns {
  int own[kLoraColumns];  // -1: another part's
  bool any = false;
  __device__ LoraColumns(const LoraWeights::Part& part, int column) {
#pragma unroll
    for (int c = 0; c < kLoraColumns; ++c) any |= (own[c] = lora_column_in(part, column + c)) >= 0;
  }
};

// sums[r] += B inner[r] for the rows r < count of `inner`. `b`: where the part's matrix begins, [part.rank][part.cols].
template <class T, int R>
__device__ void add_lora_part(const LoraWeights::Part& part, const T* b, const LoraColumns& columns, const float* inner,
                              int64_t stride, int count, float (&sums)[R][kLoraColumns]) {
  const int(&own)[kLoraColumns] = columns.own;
  const bool whole = own[0] >= 0 && own[kLoraColumns - 1] == own[0] + kLoraColumns - 1 && own[0] % kLoraColumns == 0 &&
                     part.cols % kLoraColumns == 0 && reinterpret_cast<uintptr_t>(b) % (kLoraColumns * sizeof(T)) == 0;
  for (int j = 0; j < part.rank; ++j) {
    float bs[kLoraColumns];
    if (whole) {
      const auto few = *reinterpret_cast<const Vector<T, kLoraColumns>*>(b + int64_t{j} * part.cols + own[0]);
#pragma unroll
      for (int c = 0; c < kLoraColumns; ++c) bs[c] = to_float(few.at[c]);
    } else {
#pragma unroll
      for (int c = 0; c < kLoraColumns; ++c) bs[c] = own[c] >= 0 ? to_float(b[int64_t{j} * part.cols + own[c]]) : 0;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= count) break;
      const float t = inner[r * stride + part.first + j];
#pragma unroll
      for (int c = 0; c < kLoraColumns; ++c) sums[r][c] += t * bs[c];
    }
  }
}

// y += scale * sums.
__device__ inline void add_lora_sums(GpuMatrix y, int64_t row, int column, const LoraColumns& columns, float scale,
                                     const float (&sums)[kLoraColumns]) {
#pragma unroll
  for (int c = 0; c < kLoraColumns; ++c) {
    if (columns.own[c] >= 0) y.set(row, column + c, y.get(row, column + c) + scale * sums[c]);
  }
}

// y += scale * B inner, each item to its row of y. Grid: (columns, items). `inner`: shared memory, [R][stride];
// load(item, matrices, j): value j of an item's.
template <class T, int R, class Items, class Load>
__device__ void expand_lora(const LoraParams<Items>& p, float* inner, Load load) {
  const int column = (static_cast<int>(blockIdx.x) * kLoraThreads + static_cast<int>(threadIdx.x)) * kLoraColumns;
  for_lora_runs<T, R>(p.items, int64_t{blockIdx.y} * R, [&](int64_t item, int count, const LoraMatrices<T>& m) {
    __syncthreads();  // the previous run's values may still be in use
    for (int r = 0; r < count; ++r) {
      for (int j = static_cast<int>(threadIdx.x); j < m.w->rank; j += kLoraThreads)
        inner[r * p.stride + j] = load(item + r, m, j);
    }
    __syncthreads();
    for (int i = 0; i < m.w->parts; ++i) {
      const LoraWeights::Part part = m.w->part[i];
      const LoraColumns columns(part, column);
      if (!columns.any) continue;
      float sums[R][kLoraColumns] = {};
      add_lora_part<T, R>(part, m.b + part.at, columns, inner, p.stride, count, sums);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (r < count) add_lora_sums(p.y, p.items.y_row(item + r), column, columns, p.scale, sums[r]);
      }
    }
  });
}

// Blocks of lora_shrink along the rows of A: 128 rows are covered at once, without idle blocks at usual ranks. A warp
// loops over what the grid leaves.
constexpr unsigned kLoraBlocksOfDots = 4;

inline bool lora_rows_are_wide(const Matrix& x, DType format) {
  const int64_t each = 16 / info(format).bytes;
  return x.cols % each == 0 && x.stride % each == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

inline unsigned lora_column_blocks(int64_t columns) {
  constexpr int64_t kEach = kLoraThreads * kLoraColumns;
  return static_cast<unsigned>((columns + kEach - 1) / kEach);
}

}  // namespace millrace
