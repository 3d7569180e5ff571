// The multiplying warpgroups of a Hopper prefill block: 64 query rows each, 16 per warp. The softmax of the next tile
// of keys overlaps with the products of weights and values of the current tile.
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup_space.cuh"

namespace millrace {

template <class T, int kKeyDim, int kValueDim = kKeyDim>
class WarpgroupRows {
  using Config = WarpgroupConfig<kKeyDim, kValueDim>;
  using Space = WarpgroupSpace<kKeyDim, kValueDim>;
  using Place = typename Space::Place;
  static constexpr int kScores = Config::kTokens / 2;  // of a thread

 public:
  template <class Params>
  __device__ WarpgroupRows(const Params& w, const Space& space, int group)
      : p_(w.prefill), space_(space), group_(group) {}

  // Processes all tiles of the block. careful: products may be anything, even infinite. Otherwise the products are
  // trusted, and the return value tells whether the results are valid.
  __device__ bool run(bool careful) {
    bool all_sound = true;
    while (take_tile()) {
      clear();
      all_sound &= attend(careful);
      write();
    }
    return all_sound;
  }

 protected:
  // Waits for the next tile's queries; false if there is none.
  __device__ bool take_tile() {
    const int lane = fresh_lane(), warp = static_cast<int>(threadIdx.x) / 32 % 4;
    note_ = space_.note(tiles_);
    space_.queries_full().wait(tiles_ % 2);
    ++tiles_;
    const int position = noted(offsetof(TileNote, position));
    first_row_ = position + group_ * 64 + warp * 16;
    first_position_ = noted(offsetof(TileNote, first_position));
    key_tiles_ = noted(offsetof(TileNote, key_tiles));
    if constexpr (Config::kQueriesInRegisters) {
#pragma unroll
      for (int k = 0; k < kKeyDim / 16; ++k) {
        load_matrices(q_[k], space_.query_piece(group_ * 64 + warp * 16 + lane % 16, k * 2 + lane / 16));
      }
    }
    if (Config::kQueriesInRegisters || key_tiles_ == 0) space_.queries_empty().arrive();
    return key_tiles_ > 0;
  }

  // Read anew for every tile, so that derived values occupy no registers in between.
  __device__ static int fresh_lane() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }

  // The shuffle tells the compiler that all lanes have the same value.
  __device__ int noted(size_t field) const {
    int value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(note_ + static_cast<uint32_t>(field)) : "memory");
    return __shfl_sync(~0u, value, 0);
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) o_[i] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) largest_[half] = kNoScore, total_[half] = 0;
  }

  // Adds the tile's keys and values to the sums; kContinues: the sums may have begun elsewhere.
  template <bool kContinues = false>
  __device__ bool attend(bool careful) {
    float score[kScores];
    uint32_t weights[Config::kTokens / 16][4];
    float factor[2];
    multiply_keys(at_, score);
    warpgroup_wait<0>();
    hold(score);
    release(space_.keys_empty(at_));
    const bool moved_first = weigh(0, careful, score, factor);
    if (kContinues && moved_first) rescale(factor);
    pack_weights(score, weights);
    if (group_ == 1) pass_turn();
    for (int t = 1; t < key_tiles_; ++t) {
      const Place next = at_.next();
      await_turn();
      multiply_keys(next, score);
      add_values(at_, weights);
      pass_turn();
      warpgroup_wait<1>();
      hold(score);
      release(space_.keys_empty(next));
      const bool moved = weigh(t, careful, score, factor);
      warpgroup_wait<0>();
      hold(o_);
      release(space_.values_empty(at_));
      if (moved) rescale(factor);
      pack_weights(score, weights);
      at_ = next;
    }
    silence();
    await_turn();
    add_values(at_, weights);
    if (group_ == 0) pass_turn();
    warpgroup_wait<0>();
    hold(o_);
    release(space_.values_empty(at_));
    if (!Config::kQueriesInRegisters) space_.queries_empty().arrive();
    at_ = at_.next();
#pragma unroll
    for (int half = 0; half < 2; ++half) total_[half] = quad_sum(total_[half]);
    return rows_sound();
  }

  // Rows beyond the end of a prompt hold arbitrary sums; they are not written.
  __device__ bool rows_sound() const {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int left = noted(offsetof(TileNote, rows)) - (group_ * 64 + warp * 16 + fresh_lane() / 4);
    return (left <= 0 || sound(total_[0])) && (left <= 8 || sound(total_[1]));
  }

  __device__ void write() {
    with_device_type(p_.args.out.dtype, [&](auto type) {
      write_half<decltype(type), 0>();
      write_half<decltype(type), 1>();
      return 0;
    });
  }

  // The row of the tile whose sums the thread holds: half * 8 + lane / 4 of the warp's.
  __device__ int row_of(int half) const {
    return group_ * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + half * 8 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  // The first of each eight columns that the thread holds, of two.
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 4 * 2; }

  template <class Out, int half>
  __device__ void write_half() {
    const int row = row_of(half);
    const int64_t first = noted(offsetof(TileNote, row)), head = noted(offsetof(TileNote, head));
    const float inverse = 1 / with_sink(p_.args, head, total_[half], largest_[half]);
    if (row >= noted(offsetof(TileNote, rows))) return;
    Out* out = static_cast<Out*>(p_.args.out.data) + (first + row) * p_.args.out.stride + head * kValueDim + column();
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      *reinterpret_cast<Vector<Out, 2>*>(out + n * 8) = {from_float<Out>(o_[n * 4 + half * 2] * inverse),
                                                         from_float<Out>(o_[n * 4 + half * 2 + 1] * inverse)};
    }
  }

  __device__ void multiply_keys(Place at, float (&score)[kScores]) {
    space_.keys_full(at).wait(at.parity);
    const uint64_t keys = panel_descriptor(space_.key_tile(at));
    // Read anew for every tile: descriptors of all steps would occupy registers.
    uint32_t queries_at = space_.query_panel(group_ * 64, 0);
    asm volatile("" : "+r"(queries_at));
    const uint64_t queries = panel_descriptor(queries_at);
    hold(score);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < kKeyDim / 16; ++k) {
      const uint64_t piece = moved_by(keys, k / 4 * Config::kPanelBytes + k % 4 * 32);
      if constexpr (Config::kQueriesInRegisters) {
        warpgroup_multiply<T>(score, q_[k], piece, k > 0);
      } else {
        warpgroup_multiply<T>(score, moved_by(queries, k / 4 * Config::kRows * 128 + k % 4 * 32), piece, k > 0);
      }
    }
    warpgroup_commit();
  }

  __device__ void add_values(Place at, const uint32_t (&weights)[Config::kTokens / 16][4]) {
    space_.values_full(at).wait(at.parity);
    const uint64_t values = panel_descriptor(space_.value_tile(at), Config::kPanelBytes);
    hold(o_);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < Config::kTokens / 16; ++k) {
      warpgroup_add<T>(o_, weights[k], moved_by(values, k * 16 * 128));
    }
    warpgroup_commit();
  }

  // Zeroes the value rows of the last tile beyond the end of the sequence: they may hold NaN, and a weight of zero
  // times NaN is NaN.
  __device__ void silence() {
    const int used = noted(offsetof(TileNote, length)) - (first_position_ + (key_tiles_ - 1) * Config::kTokens);
    if (used >= Config::kTokens) return;
    space_.values_full(at_).wait(at_.parity);
    const int thread = static_cast<int>(threadIdx.x) - 128, pieces = (Config::kTokens - used) * 8;
    for (int i = thread; i < pieces * Config::kValuePanels; i += Config::kConsumers * 128) {
      const uint32_t to = space_.value_tile(at_) + i / pieces * Config::kPanelBytes + used * 128 + i % pieces * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    publish_to_tensor_cores();
    asm volatile("bar.sync 3, %0;" ::"n"(Config::kConsumers * 128) : "memory");
  }

  __device__ static bool sound(float total) { return total > 0 && total < 3e38f; }

  // Turns scores into weights relative to the maximum. Returns whether the maximum moved, and the factors. Trusted
  // scores stay raw products until the exponential, which includes the scale.
  __device__ bool weigh(int t, bool careful, float (&score)[kScores], float (&factor)[2]) {
    const bool finish = careful || p_.args.softcap > 0;
    const float scale = finish ? 1.0f : p_.args.scale * kLog2E;
    if (finish) finish_scores(p_.args, score);
    mask(first_position_ + t * Config::kTokens, score);
    float largest[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int i = 0; i < kScores; ++i) largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], score[i]);
    largest[0] *= scale, largest[1] *= scale;
    constexpr float kSlack = kLazySlack - kRoom<T>;
    const bool behind = largest[0] > largest_[0] + kSlack || largest[1] > largest_[1] + kSlack;
    const bool moved = __any_sync(~0u, behind);
    if (moved) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(largest_[half], quad_max(largest[half]) + kRoom<T>);
        factor[half] = exp2_fast(largest_[half] - top);
        largest_[half] = top;
        total_[half] *= factor[half];
      }
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      score[i] = exp2_fast(score[i] * scale - largest_[i % 4 / 2]);
      total_[i % 4 / 2] += score[i];
    }
    return moved;
  }

  __device__ void mask(int first, float (&score)[kScores]) const {
    const int window = p_.args.window;
    if (first + Config::kTokens - 1 <= first_row_ && (window == 0 || first >= first_row_ + 16 - window)) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int position = first + i / 4 * 8 + lane % 4 * 2 + i % 2, last = first_row_ + lane / 4 + i % 4 / 2 * 8;
      if (position > last || (window > 0 && position <= last - window)) score[i] = kMasked;
    }
  }

  __device__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) o_[i] *= factor[i % 4 / 2];
  }

  __device__ static void pack_weights(const float (&score)[kScores], uint32_t (&weights)[Config::kTokens / 16][4]) {
#pragma unroll
    for (int i = 0; i < Config::kTokens / 4; ++i) weights[i / 4][i % 4] = pack<T>(score[i * 2], score[i * 2 + 1]);
  }

  // The two groups issue their products alternately, so that the softmax of one overlaps with the products of the
  // other. Each group must wait between two calls of pass_turn(): the barrier counts only one arrival.
  __device__ void await_turn() const { asm volatile("bar.sync %0, 256;" ::"r"(4 + group_) : "memory"); }
  __device__ void pass_turn() const { asm volatile("bar.arrive %0, 256;" ::"r"(5 - group_) : "memory"); }

  __device__ static void release(const CopyBarrier& empty) {  // per warp
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  const PrefillParams& p_;
  const Space& space_;
  const int group_;
  Place at_;       // tile of keys whose values are added next
  int tiles_ = 0;  // tiles of queries taken so far
  uint32_t note_ = 0;
  int first_row_ = 0, first_position_ = 0, key_tiles_ = 0;  // position of the warp's first row; of the first key
  float largest_[2], total_[2];
  float o_[kValueDim / 2];
  uint32_t q_[Config::kQueriesInRegisters ? kKeyDim / 16 : 1][4];
};

}  // namespace millrace
