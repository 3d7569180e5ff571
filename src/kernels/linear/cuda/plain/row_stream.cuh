// How the warps of one full wave share the rows of a plain matrix, and the order in which a warp reads its rows.
//
// Each warp takes whole rows, round by round, chunk by chunk. If the last round would leave most warps idle, its rows
// are cut into chunks that the warps of a block share: the tail.
#pragma once

#include <algorithm>

#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/families.h"

namespace millrace {

inline constexpr int kRowWarps = 8, kRowThreads = 32 * kRowWarps;
inline constexpr int kRowBlocks = 2;  // per multiprocessor
inline constexpr int kRowStep = 256;  // elements of a row that a warp reads at once
inline constexpr int kRowAhead = 8;   // steps per chunk; one chunk is in flight in registers: 64 KB per multiprocessor
inline constexpr int kRowChunk = kRowAhead * kRowStep;
inline constexpr int kMostTailChunks = 256;  // per block

struct RowWork {
  const void* weights;
  int64_t stride;             // elements
  int k, chunks;              // per row
  int items;                  // outputs, of two rows each with gate_up
  int whole;                  // items before the tail
  int tail_items, tail_each;  // items per block, chunks per warp
  bool gate_up;

  __host__ __device__ int item_chunks() const { return gate_up ? 2 * chunks : chunks; }
};

inline int64_t row_items(const CudaLinearProblem& p) { return p.gate_up ? p.n / 2 : p.n; }
inline int row_grid(const CudaLinearProblem& p, const CudaLimits& limits) {
  return static_cast<int>(std::min<int64_t>(ceil_div(row_items(p), kRowWarps), int64_t{kRowBlocks} * limits.sms));
}

inline RowWork row_work(const CudaLinearProblem& p, const void* weights, int grid) {
  RowWork work{};
  work.weights = weights;
  work.stride = packed_linear_stride(p.k);
  work.k = static_cast<int>(p.k);
  work.chunks = static_cast<int>(ceil_div(p.k, kRowChunk));
  work.items = static_cast<int>(row_items(p));
  work.gate_up = p.gate_up;
  const int left = work.items % (grid * kRowWarps), each = work.item_chunks();
  work.tail_items = static_cast<int>(ceil_div(left, grid));
  work.tail_each = static_cast<int>(ceil_div(work.tail_items * each, kRowWarps));
  // The partial sums of a tail must be added: use it only if it saves half of a round.
  const bool has_tail = left > 0 && 2 * work.tail_each <= each && work.tail_items * each <= kMostTailChunks;
  work.whole = has_tail ? work.items - left : work.items;
  return work;
}

// Chunks of the busiest warp.
inline int64_t most_chunks(const RowWork& work, int grid) {
  const int64_t rounds = ceil_div(work.whole, int64_t{grid} * kRowWarps);
  return rounds * work.item_chunks() + (work.whole < work.items ? work.tail_each : 0);
}

// A warp's sequence of chunks. Warps start at different positions in K: otherwise rows that are a power of two apart
// would all hit the same memory channels.
template <class T, bool kTail>
class RowStream {
 public:
  __device__ __forceinline__ explicit RowStream(const RowWork& work)
      : work_(work),
        item_(static_cast<int>(blockIdx.x) * kRowWarps + static_cast<int>(threadIdx.x) / 32),
        chunk_(item_ % work.chunks),
        left_(work.chunks) {
    enter();
  }

  // Loads part `i` of the next chunk.
  __device__ __forceinline__ uint4 load(int i) const {
    return load_stream_if(from_ + i * kRowStep, i * kRowStep < left_of_row_, policy_);
  }
  // Copies the whole next chunk, the lane's parts a step apart; elements beyond the row become zeros.
  __device__ __forceinline__ void copy(uint8_t* to) const {
#pragma unroll
    for (int i = 0; i < kRowAhead; ++i) {
      const bool live = i * kRowStep < left_of_row_;
      copy_stream_if(to + i * kRowStep * sizeof(T), live ? from_ + i * kRowStep : work_.weights, live, policy_);
    }
  }
  __device__ __forceinline__ bool ended() const { return item_ >= work_.items; }

  __device__ __forceinline__ void next() {
    chunk_ = chunk_ + 1 == work_.chunks ? 0 : chunk_ + 1;
    --left_;
    if (kTail && in_tail_) {
      if (left_ <= 0) {
        item_ = work_.items;
      } else if (chunk_ == 0) {
        end_row(1);
      }
    } else if (left_ == 0) {
      left_ = work_.chunks;
      end_row(static_cast<int>(gridDim.x) * kRowWarps);
      if (kTail && item_ >= work_.whole) enter_tail();
    }
    enter();
  }

 private:
  __device__ __forceinline__ void end_row(int items) {
    if (second_ || !work_.gate_up) item_ += items;
    second_ = work_.gate_up && !second_;
  }
  __device__ __forceinline__ void enter_tail() {
    const int each = work_.item_chunks(), first = static_cast<int>(threadIdx.x) / 32 * work_.tail_each;
    const int item = first / each, place = first - item * each;
    in_tail_ = true;
    left_ = min(work_.tail_each, work_.tail_items * each - first);
    second_ = place >= work_.chunks;
    chunk_ = second_ ? place - work_.chunks : place;
    item_ = left_ > 0 ? work_.whole + static_cast<int>(blockIdx.x) * work_.tail_items + item : work_.items;
  }
  __device__ __forceinline__ void enter() {
    const int64_t row = work_.gate_up ? item_ / 8 * 16 + item_ % 8 + (second_ ? 8 : 0) : item_;
    const int column = (chunk_ * kRowAhead * 32 + static_cast<int>(threadIdx.x) % 32) * 8;
    from_ = static_cast<const T*>(work_.weights) + row * work_.stride + column;
    left_of_row_ = item_ < work_.items ? work_.k - column : 0;
  }

  const RowWork& work_;
  const T* from_;  // the lane's first element of the next chunk
  int item_, chunk_, left_, left_of_row_;
  uint64_t policy_ = evict_first_policy();
  bool second_ = false, in_tail_ = false;
};

}  // namespace millrace
