// The key and value of a sequence's new token, where attention has to store them itself: the warp that reads the unit
// they belong to turns the key, writes both to their page, and puts them in place of what it copied from there.
#pragma once

#include "kernels/attention/cuda/decode.cuh"

namespace millrace {

template <class T, class Config>
class FreshRow {
  static constexpr int kDim = Config::kDim;
  using Rows = SwizzledRows<kDim>;
  static constexpr int kHalf = kDim / 2, kPairs = (kHalf + 31) / 32;  // of a lane

 public:
  __device__ FreshRow(const DecodeParams& p, const Segment& s) {
    if (p.args.fresh.keys == nullptr) return;
    const int unit = s.slice.past / kUnit;
    const bool reads_it =
        unit >= s.begin && unit < s.end && (unit - s.begin) % Config::kWarps == static_cast<int>(threadIdx.x) / 32;
    if (!reads_it) return;
    unit_ = unit;
    row_ = s.slice.past % kUnit;
    halves_ = p.args.fresh.halves;
    const int slot = p.args.fresh.row_slots[s.slice.first_row];  // asked for with the rest
    with_device_type(p.args.q.dtype, [&](auto source) {
      fetch<decltype(source)>(p, s);
      return 0;
    });
    if (slot >= 0) store(p, s, slot);
  }

  __device__ bool is_in(int unit) const { return unit == unit_; }
  __device__ void put_key(uint32_t keys) const { put(keys, key_); }
  __device__ void put_value(uint32_t values) const { put(values, value_); }

 private:
  __device__ int first_of(int pair) const { return halves_ ? pair : 2 * pair; }
  __device__ int second_of(int pair) const { return halves_ ? pair + kHalf : 2 * pair + 1; }

  template <class F>
  __device__ static void for_pairs(F f) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = i * 32 + static_cast<int>(threadIdx.x) % 32;
      if (pair < kHalf) f(i, pair);
    }
  }

  template <class Source>
  __device__ void fetch(const DecodeParams& p, const Segment& s) {
    const CudaFreshRows& fresh = p.args.fresh;
    const int64_t at = s.slice.first_row * fresh.stride + s.kv_head * kDim;
    const Source *keys = static_cast<const Source*>(fresh.keys) + at,
                 *values = static_cast<const Source*>(fresh.values) + at;
    const float* angles =
        fresh.angles != nullptr ? fresh.angles + static_cast<int64_t>(s.slice.first_row) * kDim : nullptr;
    for_pairs([&](int i, int pair) {
      float a = to_float(keys[first_of(pair)]), b = to_float(keys[second_of(pair)]);
      if (angles != nullptr) turn_pair(a, b, angles[pair], angles[kHalf + pair]);
      key_[i][0] = from_float<T>(a);
      key_[i][1] = from_float<T>(b);
      value_[i][0] = from_float<T>(to_float(values[first_of(pair)]));
      value_[i][1] = from_float<T>(to_float(values[second_of(pair)]));
    });
  }

  __device__ void store(const DecodeParams& p, const Segment& s, int slot) const {
    const int page = slot / p.block_size;
    const int64_t row = (int64_t{page} * p.kv_heads + s.kv_head) * p.block_size + slot - page * p.block_size;
    const int64_t at = row * kDim;
    T *keys = static_cast<T*>(p.args.keys) + at, *values = static_cast<T*>(p.args.values) + at;
    for_pairs([&](int i, int pair) {
      keys[first_of(pair)] = key_[i][0];
      keys[second_of(pair)] = key_[i][1];
      values[first_of(pair)] = value_[i][0];
      values[second_of(pair)] = value_[i][1];
    });
  }

  // Into the unit at shared address `to`.
  __device__ void put(uint32_t to, const T (&x)[kPairs][2]) const {
    const auto place = [&](int column, T value) {
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + Rows::offset(row_, column / 8) + column % 8 * 2),
                   "h"(reinterpret_cast<const uint16_t&>(value))
                   : "memory");
    };
    for_pairs([&](int i, int pair) {
      place(first_of(pair), x[i][0]);
      place(second_of(pair), x[i][1]);
    });
    __syncwarp();
  }

  int unit_ = -1, row_ = 0;
  bool halves_ = true;
  T key_[kPairs][2], value_[kPairs][2];
};

}  // namespace millrace
