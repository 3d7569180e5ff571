// A step's new rows for one pair: its queries and, if attention must store them itself, the sequence's new key and
// value. All threads of a block load them and apply norms and RoPE together; then each warp takes its operands from
// shared memory. Code that runs once costs more by its length than by its latency.
#pragma once

#include "kernels/attention/cuda/decode/walk.cuh"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

__device__ inline void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float before = a;
  a = a * cosine - b * sine;
  b = b * cosine + before * sine;
}

template <class Source>
__device__ float4 numbers(Source, const uint4& bits) {
  const auto& x = reinterpret_cast<const Vector<Source, 4>&>(bits);
  return {to_float(x.at[0]), to_float(x.at[1]), to_float(x.at[2]), to_float(x.at[3])};
}

// Loads bypass the L1 cache, which is not coherent with writes of other kernels.
__device__ inline float4 load_four(const float* from) { return __ldcg(reinterpret_cast<const float4*>(from)); }
template <class T>
__device__ float4 load_four(const T* from) {
  const uint2 bits = __ldcg(reinterpret_cast<const uint2*>(from));
  return numbers(T{}, {bits.x, bits.y});
}
// Four numbers as they are in memory, of two or four bytes each. A conversion would wait for them.
__device__ inline uint4 load_bits(const void* from, bool wide) {
  uint4 bits;
  if (wide) {
    bits = __ldcg(static_cast<const uint4*>(from));
  } else {
    const uint2 half = __ldcg(static_cast<const uint2*>(from));
    bits.x = half.x, bits.y = half.y;
  }
  return bits;
}

// The rows of a tile: its queries, then the new key and the new value. One thread brings four RoPE pairs of a row to
// shared memory. Addresses are computed, and weights requested, before the kernel that writes the rows ends.
template <class T, class Config>
class RowPart {
  static constexpr int kDim = Config::kDim, kHalf = kDim / 2;
  using Rows = SwizzledRows<kDim>;

 public:
  static constexpr int kOfRow = kHalf / 4;

  __device__ RowPart(const DecodeParams& p, const Segment& s, int index) {
    const CudaFreshRows& fresh = p.args.fresh;
    const int row = index / kOfRow, pair = index % kOfRow * 4;
    // The elements of a pair are half a head apart, or adjacent.
    const int first = fresh.halves ? pair : 2 * pair, second = fresh.halves ? pair + kHalf : 2 * pair + 4;
    rows_ = row < s.rows ? p.args.q.data : row == s.rows ? fresh.keys : fresh.values;
    at_ = s.slice.first_row * fresh.stride + s.kv_head * kDim + first;
    if (row < s.rows) {
      const RowAndHead place(p, s, s.first_row_of_tile + row);
      at_ = (s.slice.first_row + place.row) * p.args.q.stride + (s.kv_head * p.group + place.head) * kDim + first;
    }
    apart_ = second - first;
    angles_ =
        !kTurns || fresh.angles == nullptr || row > s.rows ? nullptr : fresh.angles + s.slice.first_row * kDim + pair;
    norm_ = !kNorms || row > s.rows ? nullptr : row < s.rows ? fresh.q_norm : fresh.k_norm;
    if (kNorms && norm_ != nullptr) {
      norm_ += first;
      prefetch(norm_);
      prefetch(norm_ + apart_);
    }
    if (kTurns && angles_ != nullptr) {
      prefetch(angles_);
      prefetch(angles_ + kHalf);
    }
    first_ = Rows::offset(row, first / 8) + first % 8 * 2;
    second_ = Rows::offset(row, second / 8) + second % 8 * 2;
  }

  // As requested: the first use of a number waits for it.
  struct Loaded {
    uint4 a, b;
    float4 cosines, sines, of_a, of_b;  // weights of the norm
  };
  __device__ Loaded load(const DecodeParams& p) const {
    Loaded x;
    const bool wide = p.args.q.dtype == DType::F32;
    const int each = wide ? 4 : 2;
    const auto* from = static_cast<const std::byte*>(rows_) + at_ * each;
    x.a = load_bits(from, wide);
    x.b = load_bits(from + apart_ * each, wide);
    if (kTurns && angles_ != nullptr) {
      x.cosines = load_four(angles_);
      x.sines = load_four(angles_ + kHalf);
    }
    if (kNorms && norm_ != nullptr) x.of_a = load_four(norm_), x.of_b = load_four(norm_ + apart_);
    return x;
  }
  struct Normed {
    float4 a, b, cosines, sines;
  };
  __device__ Normed norm(const DecodeParams& p, const Loaded& x) const {
    Normed y;
    y.cosines = x.cosines, y.sines = x.sines;
    with_device_type(p.args.q.dtype, [&](auto source) {
      y.a = numbers(source, x.a);
      y.b = numbers(source, x.b);
      if (kNorms && norm_ != nullptr) normalize(p.args.fresh.epsilon, source, x.of_a, x.of_b, y);
      return 0;
    });
    return y;
  }
  // The same in fewer registers, one load after the other.
  __device__ Normed load_normed(const DecodeParams& p) const {
    Normed y;
    if (kTurns && angles_ != nullptr) {
      y.cosines = load_four(angles_);
      y.sines = load_four(angles_ + kHalf);
    }
    with_device_type(p.args.q.dtype, [&](auto source) {
      const auto* from = static_cast<const decltype(source)*>(rows_) + at_;
      y.a = load_four(from);
      y.b = load_four(from + apart_);
      if (kNorms && norm_ != nullptr) {
        normalize(p.args.fresh.epsilon, source, load_four(norm_), load_four(norm_ + apart_), y);
      }
      return 0;
    });
    return y;
  }
  __device__ void place(const DecodeParams& p, Normed x, uint32_t to) const {
    if (kTurns && angles_ != nullptr) rotate(p.args.fresh.halves, x.a, x.b, x.cosines, x.sines);
    store(to + first_, x.a);
    store(to + second_, x.b);
  }

 private:
  static constexpr bool kTurns = kDim <= kMostFreshDim;  // norms and rotates
  static constexpr bool kNorms = kTurns && (kOfRow & (kOfRow - 1)) == 0;

  __device__ static float squares(float4 x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }
  // Rounds as the norm's own kernel does, which stores its result in the source's type. The lanes of a row are
  // neighbours.
  template <class Source>
  __device__ static void normalize(float epsilon, Source, float4 of_a, float4 of_b, Normed& y) {
    const unsigned row = kOfRow == 32 ? ~0u : ((1u << kOfRow % 32) - 1) << (threadIdx.x % 32 & ~(kOfRow - 1));
    float sum = squares(y.a) + squares(y.b);
#pragma unroll
    for (int step = kOfRow / 2; step > 0; step /= 2) sum += __shfl_xor_sync(row, sum, step);
    const float inverse = rsqrtf(sum / kDim + epsilon);
    const auto scaled = [&](float value, float weight) {
      return to_float(from_float<Source>(value * (inverse * weight)));
    };
    y.a = {scaled(y.a.x, of_a.x), scaled(y.a.y, of_a.y), scaled(y.a.z, of_a.z), scaled(y.a.w, of_a.w)};
    y.b = {scaled(y.b.x, of_b.x), scaled(y.b.y, of_b.y), scaled(y.b.z, of_b.z), scaled(y.b.w, of_b.w)};
  }
  __device__ static void rotate(bool halves, float4& a, float4& b, float4 cosines, float4 sines) {
    if (halves) {
      rotate_pair(a.x, b.x, cosines.x, sines.x);
      rotate_pair(a.y, b.y, cosines.y, sines.y);
      rotate_pair(a.z, b.z, cosines.z, sines.z);
      rotate_pair(a.w, b.w, cosines.w, sines.w);
    } else {
      rotate_pair(a.x, a.y, cosines.x, sines.x);
      rotate_pair(a.z, a.w, cosines.y, sines.y);
      rotate_pair(b.x, b.y, cosines.z, sines.z);
      rotate_pair(b.z, b.w, cosines.w, sines.w);
    }
  }
  __device__ static void store(uint32_t to, float4 x) {
    x = {as_number<T>(x.x), as_number<T>(x.y), as_number<T>(x.z),
         as_number<T>(x.w)};  // finite, as the KV cache requires
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(pack<T>(x.x, x.y)), "r"(pack<T>(x.z, x.w))
                 : "memory");
  }

  const void* rows_;
  const float* angles_;  // null: no rotation
  const float* norm_;    // null: no norm
  int64_t at_;           // elements
  int apart_;
  uint32_t first_, second_;  // in shared memory
};

// Whether attention stores the new keys and values.
template <class Config>
__device__ bool stores_rows(const DecodeParams& p) {
  return Config::kDim <= kMostFreshDim && p.args.fresh.keys != nullptr;
}

template <class T, class Config>
__device__ int parts_of(const DecodeParams& p, const Segment& s) {
  return (s.rows + (stores_rows<Config>(p) ? 2 : 0)) * RowPart<T, Config>::kOfRow;
}

// The part with this index, or `part` if there is none.
template <class T, class Config>
__device__ RowPart<T, Config> part_behind(const DecodeParams& p, const Segment& s, const RowPart<T, Config>& part,
                                          int index) {
  return index < parts_of<T, Config>(p, s) ? RowPart<T, Config>(p, s, index) : part;
}

// Stores all rows from the `index`-th part on. The block must synchronize before the rows are read.
template <class T, class Config>
__device__ void share_rows(const DecodeParams& p, const Segment& s, int index, uint32_t to) {
  const int parts = parts_of<T, Config>(p, s);
#pragma unroll 1
  for (; index < parts; index += Config::kThreads) {
    const RowPart<T, Config> part(p, s, index);
    part.place(p, part.load_normed(p), to);
  }
}

// The same with fewer latencies, in more registers: the `index`-th part is `part`; `next` is the thread's part behind
// it, which is requested before this one is needed.
template <class T, class Config>
__device__ void share_rows(const DecodeParams& p, const Segment& s, RowPart<T, Config> part, RowPart<T, Config> next,
                           int index, uint32_t to) {
  const int parts = parts_of<T, Config>(p, s);
  if (index >= parts) return;
  auto rows = part.load(p);
  typename RowPart<T, Config>::Loaded next_rows;
#pragma unroll 1
  while (true) {
    index += Config::kThreads;
    if (index < parts) next_rows = next.load(p);
    part.place(p, part.norm(p, rows), to);
    if (index >= parts) return;
    part = next;
    rows = next_rows;
    next = part_behind(p, s, part, index + Config::kThreads);
  }
}

// The new key and value, for the warp that reads their unit: it writes both to their page and replaces the stale rows
// that it copied from there.
template <class T, class Config>
class FreshRow {
  using Rows = SwizzledRows<Config::kDim>;

 public:
  // Requests the slot, which is a table: complete as early as the slices.
  __device__ FreshRow(const DecodeParams& p, const Segment& s) {
    const int unit = s.slice.past / kUnit;
    const bool reads_it =
        unit >= s.begin && unit < s.end && (unit - s.begin) % Config::kWarps == static_cast<int>(threadIdx.x) / 32;
    if (!stores_rows<Config>(p) || !reads_it) return;
    unit_ = unit;
    slot_ = __ldcg(p.args.fresh.row_slots + s.slice.first_row);
  }

  // `shared`: where share_rows() stored them.
  __device__ void take(const DecodeParams& p, const Segment& s, uint32_t shared) {
    if (Config::kDim > kMostFreshDim || unit_ < 0) return;
    row_ = s.slice.past % kUnit;
    if (piece() < Rows::kPieces) load(shared + Rows::offset(s.rows + (is_value() ? 1 : 0), piece()));
    if constexpr (Config::kStore == KvStore::Q8) {
      quantize(place(p, s, slot_));
    } else if constexpr (Config::kStore == KvStore::Fp8) {
      round(place(p, s, slot_));
    } else if (std::byte* to = place(p, s, slot_); to != nullptr) {
      *reinterpret_cast<uint4*>(to + piece() * 16) = bits_;
    }
  }

  __device__ bool is_in(int unit) const { return unit == unit_; }
  __device__ void put_key(uint32_t keys) const { put(keys, !is_value()); }
  __device__ void put_value(uint32_t values) const { put(values, is_value()); }

 private:
  // The first half of the warp holds pieces of the key, the second half of the value.
  __device__ static bool is_value() { return threadIdx.x % 32 >= 16; }
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % 16; }

  __device__ void load(uint32_t from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits_.x), "=r"(bits_.y), "=r"(bits_.z), "=r"(bits_.w)
                 : "r"(from)
                 : "memory");
  }

  // The row of the cache; null if the lane has no piece of it or the token is not stored.
  __device__ std::byte* place(const DecodeParams& p, const Segment& s, int slot) const {
    if (slot < 0 || piece() >= Rows::kPieces) return nullptr;
    const int page = p.page_of(slot);
    const int64_t row = (int64_t{page} * p.kv_heads + s.kv_head) * p.block_size + slot - page * p.block_size;
    return static_cast<std::byte*>(is_value() ? p.args.values : p.args.keys) + row * Config::kRowBytes;
  }

  // Stores a row in 8 bits and keeps what a later step will read. Four lanes hold a block of Q8_0.
  __device__ void quantize(std::byte* to) {
    constexpr float kSmallest = 1e-30f;  // as in rope_write
    float x[8], largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = __half2float(reinterpret_cast<const __half*>(&bits_)[i]);
      largest = fmaxf(largest, fabsf(x[i]));
    }
    largest = quad_max(largest);
    const float inverse = largest > kSmallest ? 127 / largest : 0.0f;
    const uint16_t scale = __half_as_ushort(__float2half_rn(largest / 127));
    uint32_t quants[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) quants[i / 4] |= (__float2int_rn(x[i] * inverse) & 0xff) << i % 4 * 8;
    bits_ = expand_q8(quants[0], quants[1], scale);
    if (to == nullptr) return;
    auto* block = reinterpret_cast<uint16_t*>(to + piece() / 4 * 34);
    if (piece() % 4 == 0) block[0] = scale;
#pragma unroll
    for (int i = 0; i < 4; ++i) block[1 + piece() % 4 * 4 + i] = static_cast<uint16_t>(quants[i / 2] >> i % 2 * 16);
  }
  __device__ void round(std::byte* to) {
    const uint2 bytes = {to_fp8(bits_.x) | to_fp8(bits_.y) << 16, to_fp8(bits_.z) | to_fp8(bits_.w) << 16};
    bits_ = expand_fp8(bytes);
    if (to != nullptr) *reinterpret_cast<uint2*>(to + piece() * 8) = bytes;
  }

  // Stores into the unit at shared address `to`.
  __device__ void put(uint32_t to, bool has_it) const {
    if (has_it && piece() < Rows::kPieces) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + Rows::offset(row_, piece())), "r"(bits_.x),
                   "r"(bits_.y), "r"(bits_.z), "r"(bits_.w)
                   : "memory");
    }
    __syncwarp();
  }

  int unit_ = -1, row_ = 0, slot_ = 0;
  uint4 bits_ = {};
};

}  // namespace millrace
