// Prefill attention over expanded keys and values on Hopper, in the course of hopper.cuh.
#pragma once

#include "kernels/attention/cuda/prefill/expanded_feed.cuh"
#include "kernels/attention/cuda/prefill/hopper.cuh"

namespace millrace {

template <class T, int kPlain, int kValueDim>
class ExpandedRows : WarpgroupRows<T, kPlain + kSharedColumns, kValueDim> {
  using Base = WarpgroupRows<T, kPlain + kSharedColumns, kValueDim>;
  using Space = WarpgroupSpace<kPlain + kSharedColumns, kValueDim>;

 public:
  __device__ ExpandedRows(const ExpandedParams& w, const Space& space, int group) : Base(w, space, group), w_(w) {}

  // As Base::run(). Sums of an earlier piece stay as they are, so that a tile can be processed twice.
  __device__ bool run(bool careful) {
    bool all_sound = true;
    while (this->take_tile()) {
      if (pieces() & kFromBefore) {
        begin_half<0>();
        begin_half<1>();
      } else {
        this->clear();
      }
      all_sound &= this->template attend<true>(careful);
      if (pieces() & kToAfter) {
        leave_half<0>();
        leave_half<1>();
      } else {
        with_device_type(w_.prefill.args.out.dtype, [&](auto type) {
          write_half<decltype(type), 0>();
          write_half<decltype(type), 1>();
          return 0;
        });
      }
    }
    return all_sound;
  }

 private:
  __device__ int pieces() const { return this->noted(offsetof(TileNote, pieces)); }
  __device__ int head() const { return this->noted(offsetof(TileNote, head)); }
  __device__ bool is_used(int row) const { return row < this->noted(offsetof(TileNote, rows)); }
  // Index of a row of the tile among the rows of all heads.
  __device__ int64_t index_of(int row) const {
    const int first = this->noted(offsetof(TileNote, position)) - w_.slice.past;
    return static_cast<int64_t>(head()) * w_.slice.rows + first + row;
  }

  template <int half>
  __device__ void begin_half() {
    const int row = this->row_of(half);
    const int64_t index = index_of(row);
    const bool used = is_used(row);
    float2 totals{kNoScore, 0};
    if (used) totals = reinterpret_cast<const float2*>(w_.before.totals)[index];
    this->largest_[half] = totals.x;
    this->total_[half] = this->column() == 0 ? totals.y : 0;  // each lane counts its own columns only
    const float* from = w_.before.values + index * kValueDim + this->column();
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      const float2 two = used ? *reinterpret_cast<const float2*>(from + n * 8) : float2{0, 0};
      this->o_[n * 4 + half * 2] = two.x;
      this->o_[n * 4 + half * 2 + 1] = two.y;
    }
  }

  template <int half>
  __device__ void leave_half() {
    const int row = this->row_of(half);
    const int64_t index = index_of(row);
    if (!is_used(row)) return;
    if (this->column() == 0)
      reinterpret_cast<float2*>(w_.after.totals)[index] = {this->largest_[half], this->total_[half]};
    float* to = w_.after.values + index * kValueDim + this->column();
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n)
      *reinterpret_cast<float2*>(to + n * 8) = {this->o_[n * 4 + half * 2], this->o_[n * 4 + half * 2 + 1]};
  }

  template <class Out, int half>
  __device__ void write_half() {
    const int row = this->row_of(half), at = head();
    const CudaMatrix& out = w_.prefill.args.out;
    const int64_t first = this->noted(offsetof(TileNote, row));
    const float inverse = 1 / with_sink(w_.prefill.args, at, this->total_[half], this->largest_[half]);
    if (!is_used(row)) return;
    Out* to = static_cast<Out*>(out.data) + (first + row) * out.stride + at * w_.value_dim + this->column();
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      if (n * 8 + this->column() >= w_.value_dim) continue;
      *reinterpret_cast<Vector<Out, 2>*>(to + n * 8) = {from_float<Out>(this->o_[n * 4 + half * 2] * inverse),
                                                        from_float<Out>(this->o_[n * 4 + half * 2 + 1] * inverse)};
    }
  }

  const ExpandedParams& w_;
};

template <class T, int kPlain, int kValueDim>
__global__ void __launch_bounds__(WarpgroupConfig<kPlain + kSharedColumns, kValueDim>::kThreads, 1)
    prefill_expanded(const __grid_constant__ ExpandedParams w) {
  extern __shared__ unsigned char shared_bytes[];
  const WarpgroupSpace<kPlain + kSharedColumns, kValueDim> space(shared_address(shared_bytes));
  run_parts<ExpandedFeed<kPlain, kValueDim>, ExpandedQueries<T, kPlain, kValueDim>, ExpandedRows<T, kPlain, kValueDim>>(
      w, space);
}

}  // namespace millrace
