// Loads keys and values for a warp of decode attention.
#pragma once

#include "kernels/attention/cuda/decode/walk.cuh"

namespace millrace {

template <class Config>
__device__ int stage_count(const DecodeParams& p) {
  return p.deep ? 2 * Config::kStages : Config::kStages;
}

// The copies of one warp, issued as many units ahead of the arithmetic as there are stages.
template <class T, class Config, class Walk>
class UnitLoader {
  static constexpr int kDim = Config::kDim;
  using Rows = SwizzledRows<kDim>;

 public:
  __device__ UnitLoader(const DecodeParams& p, const Walk& walk, uint32_t stages)
      : p_(p), walk_(walk), stages_(stages), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32) {
#pragma unroll
    for (int i = 0; i < kPeriod; ++i) {
      places_[i] = Rows::offset((i * 32 + lane_) / Rows::kPieces, (i * 32 + lane_) % Rows::kPieces);
    }
    if (!walk_.done()) enter();
  }

  __device__ void restart(const Walk& walk) {
    walk_ = walk;
    stage_ = 0;
    if (!walk_.done()) enter();
  }

  // Issues copies of units that no kernel of this step writes, up to the number of stages; returns their number. It
  // runs before anything else in a block, so it handles no rare cases.
  __device__ int issue_old() {
    int count = 0;
    while (count < stage_count<Config>(p_) && !walk_.done() && unit_ < segment_.end &&
           (unit_ + 1) * kUnit <= segment_.slice.past && unit_ * kUnit >= seen_from_) {
      issue_whole();
      ++count;
    }
    return count;
  }

  // Two groups of copies, keys and values. Empty groups past the end keep the group count simple.
  __device__ void issue() {
    while (!walk_.done() && unit_ >= segment_.end) {
      walk_.next(segment_);
      if (!walk_.done()) enter();
    }
    if (!walk_.done() && taken_ == 32) fetch_rows();
    const int position = unit_ * kUnit;
    if (walk_.done()) {
      commit_copies();
      commit_copies();
      next_stage();
    } else if (kExpands || (position >= seen_from_ && position + kUnit <= seen_until_)) {
      issue_whole();
    } else {
      issue_unit([&](uint32_t to, const std::byte* from) { copy_seen(to, from, position); });
    }
  }

 private:
  __device__ void enter() {
    segment_ = walk_.segment();
    unit_ = segment_.begin + warp_;
    const DeviceSlice& s = segment_.slice;
    seen_until_ = s.past + s.rows;
    seen_from_ = p_.args.window > 0 ? max(0, s.past - p_.args.window + 1) : 0;
    fetch_rows();
  }

  // Lane i keeps the start of the i-th unit from here on, in rows of all pages. The division is by a run-time number,
  // so lanes do it in parallel, once for many units.
  __device__ void fetch_rows() {
    const int unit = unit_ + lane_ * Config::kWarps, page = p_.page_of(unit * kUnit);
    row_ = 0;
    if (unit < segment_.end) {
      const int place = p_.args.tables[segment_.sequence * p_.args.table_pitch + page];
      row_ = (place * p_.kv_heads + segment_.kv_head) * p_.block_size + unit * kUnit - page * p_.block_size;
    }
    taken_ = 0;
  }

  __device__ void next_stage() { stage_ = stage_ + 1 == stage_count<Config>(p_) ? 0 : stage_ + 1; }

  template <class Copy>
  __device__ void issue_unit(Copy copy) {
    const int64_t at = static_cast<int64_t>(__shfl_sync(~0u, row_, taken_)) * Config::kRowBytes;
    const uint32_t to = stages_ + stage_ * 2 * Config::kUnitBytes;
    copy(to, static_cast<const std::byte*>(p_.args.keys) + at);
    commit_copies();
    copy(to + Config::kUnitBytes, static_cast<const std::byte*>(p_.args.values) + at);
    commit_copies();
    ++taken_;
    unit_ += Config::kWarps;
    next_stage();
  }
  __device__ void issue_whole() {
    issue_unit([&](uint32_t to, const std::byte* from) {
      if constexpr (kExpands) {
        copy_stored(to, from);
      } else {
        copy_whole(to, from);
      }
    });
  }

  // Rows outside the mask may hold anything. They become zeros, since a weight of zero times NaN is NaN.
  __device__ void copy_seen(uint32_t to, const std::byte* from, int position) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int index = i * 32 + lane_;
      const int row = index / Rows::kPieces, piece = index % Rows::kPieces;
      const bool seen = position + row < seen_until_ && position + row >= seen_from_;
      copy_async(to + Rows::offset(row, piece), from + (seen ? row * Config::kRowBytes + piece * 16 : 0), seen);
    }
  }

  // A unit is contiguous in memory. The offsets of its pieces repeat every eight rows.
  __device__ void copy_whole(uint32_t to, const std::byte* from) const {
    from += lane_ * 16;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      copy_async_once(to + places_[i % kPeriod] + i / kPeriod * 8 * Rows::kRowBytes, from + i * 32 * 16);
    }
  }

  // Units of 8 bits stay as they are: the warp expands them when it needs them. Lanes behind the end of a unit copy its
  // last piece again. No cache hint: with hints these copies gave NaN (CUDA 13.0, see tile_copies.cuh).
  __device__ void copy_stored(uint32_t to, const std::byte* from) const {
    constexpr int kPieces = Config::kUnitBytes / 16;
#pragma unroll
    for (int i = 0; i < kPieces; i += 32) {
      const int at = (kPieces - i >= 32 ? i + lane_ : min(i + lane_, kPieces - 1)) * 16;
      copy_async(to + at, from + at);
    }
  }

  static constexpr bool kExpands = Config::kStore != KvStore::Plain;

  static constexpr int kCopies = kUnit * Rows::kPieces / 32;  // per lane, for keys or values
  static constexpr int kPeriod = Rows::kPieces % 4 == 0 ? Rows::kPieces / 4 : kCopies;
  const DecodeParams& p_;
  Walk walk_;
  Segment segment_;
  uint32_t stages_;
  uint32_t places_[kPeriod];
  int lane_, warp_, stage_ = 0;
  int unit_ = 0, row_ = 0, taken_ = 0, seen_until_ = 0, seen_from_ = 0;
};

}  // namespace millrace
