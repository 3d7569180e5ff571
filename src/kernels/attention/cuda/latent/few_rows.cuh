// The warps that multiply in latent attention for few query rows. A chunk has 64 latent rows. For its scores a warp
// takes 16 positions and half of the columns, so that it holds its part of the queries in registers. The warps meet
// once per chunk; then each of them computes all weights and adds the values of its own 64 columns, a panel of the
// chunk.
#pragma once

#include "kernels/attention/cuda/latent/few.cuh"
#include "kernels/attention/cuda/latent/settle.cuh"

namespace millrace {

template <class T>
class FewRows {
  static constexpr int kColumns = 64, kSteps = FewTile::kKey / 32;
  static constexpr int kMet = 1;  // named barrier of the multiplying warps

 public:
  __device__ FewRows(const DecodeParams& p, const FewSpace& space, const Segment& s) : p_(p), space_(space), s_(s) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane_ / 4;
      const RowAndHead at(p, s, s.first_row_of_tile + (row < s.rows ? row : 0));  // unused rows repeat the first
      last_[half] = s.slice.past + at.row;
      phi_[half] = p.args.phi != nullptr ? p.args.phi[at.head] * kLog2E : 0.0f;
    }
  }

  // The preceding kernels must be complete.
  __device__ void bring_queries() {
    constexpr int kPieces = FewTile::kKey / 8;
    with_device_type(p_.args.q.dtype, [&](auto type) {
      using Source = decltype(type);
#pragma unroll
      for (int i = 0; i < (kTileRows * kPieces + FewTile::kMultiplying - 1) / FewTile::kMultiplying; ++i) {
        const int item = i * FewTile::kMultiplying + static_cast<int>(threadIdx.x);
        if (item >= kTileRows * kPieces) break;
        const int row = item / kPieces, piece = item % kPieces;
        const RowAndHead at(p_, s_, s_.first_row_of_tile + (row < s_.rows ? row : 0));
        const Source* from = static_cast<const Source*>(p_.args.q.data) +
                             (s_.slice.first_row + at.row) * p_.args.q.stride +
                             static_cast<int64_t>(at.head) * FewTile::kKey + piece * 8;
        bring_piece<T>(space_.queries + piece / 8 * FewTile::kQueryPanelBytes + row * 128 + (piece % 8 ^ row % 8) * 16,
                       from);
      }
      return 0;
    });
    commit_copies();
    wait_copies<0>();
    meet();
    const uint32_t from = space_.queries + lane_ % 16 * 128, low = piece_offset(lane_ / 16);
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      load_matrices(q_[k], from + k / 2 * FewTile::kQueryPanelBytes + (low ^ k % 2 * 64));
  }

  // Attends to the chunks of the segment, which lie in stages `turn` and following. Returns whether the unified maximum
  // held for all rows of the tile. The whole block calls it.
  template <Softmax kSoftmax>
  __device__ bool run(int turn) {
    sums_.clear();
    float seen[2] = {kNoScore, kNoScore};
    for (int t = s_.begin; t < s_.end; ++t, ++turn) {
      const uint32_t chunk = space_.chunk(turn);
      space_.full(turn).wait(FewSpace::parity(turn));
      float4* scores = space_.scores + turn % 2 * FewTile::kScores;
      const int used = s_.slice.past + s_.slice.rows - t * FewTile::kTokens;  // rows of the chunk that the sequence has
      if (first_position() < used) multiply_keys(chunk, scores);
      silence(chunk, used);
      meet();
      float score[8][4];
      add_halves(scores, score);
      prepare(t, score);
      if constexpr (kSoftmax == Softmax::Unified) {
#pragma unroll
        for (int i = 0; i < 32; ++i) seen[i % 4 / 2] = fmaxf(seen[i % 4 / 2], score[i / 4][i % 4]);
        add_values(chunk, used, score, phi_);
      } else {
        follow_maximum<kSoftmax>(score);
        add_values(chunk, used, score, sums_.largest);
      }
      __syncwarp();
      if (lane_ == 0) space_.empty(turn).arrive();
    }
    if constexpr (kSoftmax == Softmax::Unified) return settle_unified<T>(sums_, seen, phi_);
    return true;
  }

  // Sums of the warp's 64 columns. Totals are added up over the lanes.
  __device__ const RowSums<kColumns>& finished_sums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) sums_.total[half] = quad_sum(sums_.total[half]);
    return sums_;
  }

 private:
  static __device__ void meet() { asm volatile("bar.sync %0, %1;" ::"n"(kMet), "n"(FewTile::kMultiplying) : "memory"); }

  __device__ int half() const { return warp_ / 4; }
  __device__ int first_position() const { return warp_ % 4 * 16; }

  // Products of 16 columns alternate between the two halves of the warps: step k of a warp has pieces 2 half and
  // 2 half + 1 of a panel's first four (k even) or last four. Offset of the first one in a row that is the lane's index
  // modulo eight, where the pieces are permuted; four pieces on, bit 6 differs.
  __device__ uint32_t piece_offset(int piece) const { return ((half() * 2 + piece) ^ lane_ % 8) * 16; }

  __device__ void multiply_keys(uint32_t chunk, float4* scores) const {
    float sums[2][2][4] = {};  // alternating sums: products that add to the same sum depend on each other
    const uint32_t from = chunk + (first_position() + lane_ % 8 + lane_ / 16 * 8) * 128;
    const uint32_t low = piece_offset(lane_ / 8 % 2);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t b[4];
      load_matrices(b, from + k / 2 * FewTile::kPanelBytes + (low ^ k % 2 * 64));
      mma<T>(sums[k % 2][0], q_[k], b[0], b[1]);
      mma<T>(sums[k % 2][1], q_[k], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      scores[(warp_ * 2 + n) * 32 + lane_] = {sums[0][n][0] + sums[1][n][0], sums[0][n][1] + sums[1][n][1],
                                              sums[0][n][2] + sums[1][n][2], sums[0][n][3] + sums[1][n][3]};
    }
  }

  // Zeroes values behind the sequence's end: they may be NaN, and a weight of zero times NaN is NaN. A tail is copied
  // in boxes of 16 rows, and those behind the end are zeros. Each warp zeroes only what it alone has read so far.
  __device__ void silence(uint32_t chunk, int used) const {
    const int first = used - first_position();
    if (first <= 0 || first >= 16) return;
    const int piece = lane_ / 2 % 2 * 4 + half() * 2 + lane_ % 2;
    const uint32_t to = chunk + lane_ / 4 * FewTile::kPanelBytes + first_position() * 128;
    __syncwarp();
    for (int row = first; row < 16; ++row) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to + row * 128 + (piece ^ row % 8) * 16), "r"(0)
                   : "memory");
    }
    publish_to_tensor_cores();  // a later copy overwrites them
  }

  __device__ void add_halves(const float4* scores, float (&score)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 a = scores[n * 32 + lane_], b = scores[FewTile::kScores / 2 + n * 32 + lane_];
      score[n][0] = a.x + b.x, score[n][1] = a.y + b.y, score[n][2] = a.z + b.z, score[n][3] = a.w + b.w;
    }
  }

  __device__ void prepare(int t, float (&score)[8][4]) const {
    finish_scores(p_.args, reinterpret_cast<float(&)[32]>(score));
    const int first = t * FewTile::kTokens;
    if (first + FewTile::kTokens - 1 <= s_.slice.past) return;  // all rows see all positions
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + n * 8 + lane_ % 4 * 2 + i % 2 > last_[i / 2]) score[n][i] = kMasked;
      }
    }
  }

  template <Softmax kSoftmax>
  __device__ void follow_maximum(const float (&score)[8][4]) {
    constexpr float kAbove = kSoftmax == Softmax::Lazy ? kRoom<T> : 0;
    float largest[2] = {score[0][0], score[0][2]};
#pragma unroll
    for (int i = 0; i < 32; ++i) largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], score[i / 4][i % 4]);
    if (kSoftmax == Softmax::Lazy) {
      constexpr float kSlack = kLazySlack - kAbove;
      const bool behind = largest[0] > sums_.largest[0] + kSlack || largest[1] > sums_.largest[1] + kSlack;
      if (!__any_sync(~0u, behind)) return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      sums_.rescale(half, fmaxf(sums_.largest[half], quad_max(largest[half]) + kAbove));
  }

  __device__ void add_values(uint32_t chunk, int used, float (&score)[8][4], const float (&base)[2]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float& x = score[i / 4][i % 4];
      x = exp2_fast(x - base[i % 4 / 2]);
      sums_.total[i % 4 / 2] += x;
    }
    const uint32_t from = chunk + warp_ * FewTile::kPanelBytes + lane_ % 16 * 128;
    const uint32_t low = (lane_ / 16 ^ lane_ % 8) * 16;
#pragma unroll
    for (int k = 0; k < FewTile::kTokens / 16; ++k) {
      if (k * 16 >= used) break;
      const float(&a)[4] = score[k * 2], (&b)[4] = score[k * 2 + 1];
      const uint32_t weights[4] = {pack<T>(a[0], a[1]), pack<T>(a[2], a[3]), pack<T>(b[0], b[1]), pack<T>(b[2], b[3])};
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t values[4];
        load_matrices_transposed(values, from + k * 16 * 128 + (low ^ n * 32));
        mma<T>(sums_.o[n * 2], weights, values[0], values[1]);
        mma<T>(sums_.o[n * 2 + 1], weights, values[2], values[3]);
      }
    }
  }

  const DecodeParams& p_;
  const FewSpace& space_;
  const Segment& s_;
  int lane_, warp_;
  uint32_t q_[kSteps][4];
  RowSums<kColumns> sums_;
  float phi_[2];
  int last_[2];
};

}  // namespace millrace
