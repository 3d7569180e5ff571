// A warp's part of a tile of 16 query rows: copies, scores, softmax and values of its columns.
#pragma once

#include "kernels/attention/cuda/latent/params.cuh"
#include "kernels/attention/cuda/latent/settle.cuh"

namespace millrace {

// Shared memory of a block, as one warp sees it.
template <class Config>
struct LatentSpace {
  uint32_t slabs;  // the warp's first stage
  float4* exchange;
  int turn = 0;

  __device__ explicit LatentSpace(unsigned char* shared)
      : slabs(shared_address(shared) + static_cast<uint32_t>(threadIdx.x) / 32 * Config::kSlabBytes),
        exchange(reinterpret_cast<float4*>(shared + Config::kStages * Config::kStageBytes)) {}

  // Two buffers take turns: a warp that has passed the next unit's barrier no longer reads this unit's scores.
  __device__ float4* next_exchange() {
    turn ^= 1;
    return exchange + turn * (Config::kWarps * 64);
  }
};

// Copies a warp's columns of one unit after the other into its stages.
template <class T, class Config>
class LatentLoader {
 public:
  __device__ LatentLoader(const DecodeParams& p, uint32_t slabs) : p_(p), slabs_(slabs) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(threadIdx.x) / 32;
  }

  __device__ void enter(const Segment& s) {
    table_ = p_.args.tables + s.sequence * p_.args.table_pitch;
    past_ = s.slice.past;
    length_ = past_ + s.slice.rows;
    unit_ = s.begin;
    end_ = s.end;
    stage_ = 0;
    if (unit_ < end_) page_ = table_[p_.page_of(unit_ * kUnit)];
  }

  // Issues units that earlier steps have written, as long as stages are free; returns their number.
  __device__ int issue_old() {
    int issued = 0;
    for (; issued < Config::kStages - 1 && unit_ < end_ && (unit_ + 1) * kUnit <= past_; ++issued) issue();
    return issued;
  }

  __device__ void issue() {
    if (unit_ < end_) {
      copy_unit();
      if (++unit_ < end_) page_ = table_[p_.page_of(unit_ * kUnit)];
    }
    commit_copies();
    stage_ = stage_ + 1 == Config::kStages ? 0 : stage_ + 1;
  }

 private:
  // Rows behind the sequence's end may hold anything; they become zeros.
  __device__ void copy_unit() {
    const int position = unit_ * kUnit;
    const int64_t first = int64_t{page_} * p_.block_size + position - p_.page_of(position) * p_.block_size;
    const T* from = static_cast<const T*>(p_.args.keys) + first * Config::kKey;
    const uint32_t to = slabs_ + stage_ * Config::kStageBytes;
    const T* columns = from + (lane_ / 16) * Config::kKey + warp_ * Config::kColumns + lane_ % 16 * 8;
    const uint32_t columns_to = to + lane_ / 16 * Config::kRowBytes + lane_ % 16 * 16;
#pragma unroll
    for (int row = 0; row < kUnit; row += 2) {
      copy_async(columns_to + row * Config::kRowBytes, columns + row * Config::kKey,
                 position + row + lane_ / 16 < length_);
    }
    const int row = lane_ / 2, piece = lane_ % 2;
    copy_async(to + row * Config::kRowBytes + Config::kColumns * 2 + piece * 16,
               from + row * Config::kKey + Config::kLatent + warp_ * Config::kTurned + piece * 8,
               position + row < length_);
  }

  const DecodeParams& p_;
  const int32_t* table_ = nullptr;
  uint32_t slabs_;
  int lane_, warp_, past_ = 0, length_ = 0, unit_ = 0, end_ = 0, page_ = 0, stage_ = 0;
};

template <class T, class Config>
class LatentTile {
  static constexpr int kSteps = (Config::kColumns + Config::kTurned) / 16;

 public:
  __device__ LatentTile(const DecodeParams& p, const Segment& s) : p_(p), s_(s) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane_ / 4;
      const RowAndHead at(p, s, s.first_row_of_tile + (row < s.rows ? row : 0));  // unused rows repeat the first
      last_[half] = s.slice.past + at.row;
      phi_[half] = p.args.phi != nullptr ? p.args.phi[at.head] * kLog2E : 0.0f;
      with_device_type(p.args.q.dtype, [&](auto source) {
        load<decltype(source)>(half, s.slice.first_row + at.row, at.head);
        return 0;
      });
    }
  }

  // Attends to the units of the segment. Returns whether the unified maximum held, the same in all threads.
  template <Softmax kSoftmax>
  __device__ bool run(LatentLoader<T, Config>& loader, LatentSpace<Config>& space) {
    sums_.clear();
    float seen[2] = {kNoScore, kNoScore};
    int stage = 0;
    for (int unit = s_.begin; unit < s_.end; ++unit) {
      wait_copies<Config::kStages - 2>();
      __syncwarp();
      loader.issue();
      const uint32_t slab = space.slabs + stage * Config::kStageBytes;
      float score[2][4];
      multiply_keys(slab, score);
      add_up(space.next_exchange(), score);
      prepare(unit, score);
      if constexpr (kSoftmax == Softmax::Unified) {
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[i / 2] = fmaxf(seen[i / 2], fmaxf(score[0][i], score[1][i]));
        add_values(slab, score, phi_);
      } else {
        follow_maximum<kSoftmax>(score);
        add_values(slab, score, sums_.largest);
      }
      stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    }
    __syncwarp();  // the stages may be overwritten
    if constexpr (kSoftmax == Softmax::Unified) return settle_unified<T>(sums_, seen, phi_);
    return true;
  }

  // Writes the result.
  __device__ void write() {
    with_device_type(p_.args.out.dtype, [&](auto type) {
      using Out = decltype(type);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = quad_sum(sums_.total[half]);
        const int row = half * 8 + lane_ / 4;
        if (row >= s_.rows) continue;
        const RowAndHead at(p_, s_, s_.first_row_of_tile + row);
        const float factor = 1 / with_sink(p_.args, at.head, total, sums_.largest[half]);
        Out* out = static_cast<Out*>(p_.args.out.data) + (s_.slice.first_row + at.row) * p_.args.out.stride +
                   static_cast<int64_t>(at.head) * Config::kLatent + own_column();
#pragma unroll
        for (int n = 0; n < Config::kColumns / 8; ++n) {
          *reinterpret_cast<Vector<Out, 2>*>(out + n * 8) = {from_float<Out>(sums_.o[n][half * 2] * factor),
                                                             from_float<Out>(sums_.o[n][half * 2 + 1] * factor)};
        }
      }
      return 0;
    });
  }

  // Writes the part's sums, and the rows' largest scores and totals. `stride`: floats between rows of sums.
  __device__ void write(const PairPart& part, int stride) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(sums_.total[half]);
      const int row = half * 8 + lane_ / 4;
      if (row >= s_.rows) continue;
      if (warp_ == 0 && lane_ % 4 == 0) part.rows[row] = {sums_.largest[half], total};
      float* to = part.o + row * stride + own_column();
#pragma unroll
      for (int n = 0; n < Config::kColumns / 8; ++n) {
        *reinterpret_cast<float2*>(to + n * 8) = {sums_.o[n][half * 2], sums_.o[n][half * 2 + 1]};
      }
    }
  }

 private:
  __device__ int own_column() const { return warp_ * Config::kColumns + lane_ % 4 * 2; }

  template <class Source>
  __device__ void load(int half, int64_t row, int head) {
    const Source* from = static_cast<const Source*>(p_.args.q.data) + row * p_.args.q.stride +
                         static_cast<int64_t>(head) * Config::kKey + lane_ % 4 * 2;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const bool turned = k == Config::kColumns / 16;
      const int column = turned ? Config::kLatent + warp_ * Config::kTurned : warp_ * Config::kColumns + k * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto v = *reinterpret_cast<const Vector<Source, 2>*>(from + column + i * 8);
        q_[k][half + i * 2] = pack<T>(to_float(v.at[0]), to_float(v.at[1]));
      }
    }
  }

  __device__ void multiply_keys(uint32_t slab, float (&score)[2][4]) const {
    float sums[2][2][4] = {};  // alternating sums: products that add to the same sum depend on each other
    const uint32_t from = slab + (lane_ % 8 + lane_ / 16 * 8) * Config::kRowBytes + lane_ / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t b[4];
      load_matrices(b, from + k * 32);
      mma<T>(sums[k % 2][0], q_[k], b[0], b[1]);
      mma<T>(sums[k % 2][1], q_[k], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = sums[0][n][i] + sums[1][n][i];
    }
  }

  // Adds up the warps' parts, in the same order in every warp.
  __device__ void add_up(float4* exchange, float (&score)[2][4]) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      exchange[(warp_ * 2 + n) * 32 + lane_] = {score[n][0], score[n][1], score[n][2], score[n][3]};
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float4 sum = exchange[n * 32 + lane_];
#pragma unroll
      for (int w = 1; w < Config::kWarps; ++w) {
        const float4 part = exchange[(w * 2 + n) * 32 + lane_];
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
      score[n][0] = sum.x, score[n][1] = sum.y, score[n][2] = sum.z, score[n][3] = sum.w;
    }
  }

  __device__ void prepare(int unit, float (&score)[2][4]) const {
    finish_scores(p_.args, reinterpret_cast<float(&)[8]>(score));
    if (unit * kUnit + kUnit - 1 <= s_.slice.past) return;  // all rows see all positions
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (unit * kUnit + n * 8 + lane_ % 4 * 2 + i % 2 > last_[i / 2]) score[n][i] = kMasked;
      }
    }
  }

  template <Softmax kSoftmax>
  __device__ void follow_maximum(const float (&score)[2][4]) {
    constexpr float kAbove = kSoftmax == Softmax::Lazy ? kRoom<T> : 0;
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = half * 2;
      largest[half] = fmaxf(fmaxf(score[0][i], score[0][i + 1]), fmaxf(score[1][i], score[1][i + 1]));
    }
    if (kSoftmax == Softmax::Lazy) {
      constexpr float kSlack = kLazySlack - kAbove;
      const bool behind = largest[0] > sums_.largest[0] + kSlack || largest[1] > sums_.largest[1] + kSlack;
      if (!__any_sync(~0u, behind)) return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums_.rescale(half, fmaxf(sums_.largest[half], quad_max(largest[half]) + kAbove));
    }
  }

  __device__ void add_values(uint32_t slab, float (&score)[2][4], const float (&base)[2]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = exp2_fast(score[n][i] - base[i / 2]);
        sums_.total[i / 2] += score[n][i];
      }
    }
    const uint32_t weights[4] = {pack<T>(score[0][0], score[0][1]), pack<T>(score[0][2], score[0][3]),
                                 pack<T>(score[1][0], score[1][1]), pack<T>(score[1][2], score[1][3])};
    const uint32_t from = slab + lane_ % 16 * Config::kRowBytes + lane_ / 16 * 16;
#pragma unroll
    for (int n = 0; n < Config::kColumns / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, from + n * 32);
      mma<T>(sums_.o[n * 2], weights, b[0], b[1]);
      mma<T>(sums_.o[n * 2 + 1], weights, b[2], b[3]);
    }
  }

  const DecodeParams& p_;
  const Segment s_;
  int lane_, warp_;
  uint32_t q_[kSteps][4];
  RowSums<Config::kColumns> sums_;
  float phi_[2];
  int last_[2];
};

}  // namespace millrace
