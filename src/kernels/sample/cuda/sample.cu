// One block samples the token of one row, whose logits are in the L2 cache. The first pass finds the most likely token,
// the second collects the candidates. The later steps scan only the candidates if these fit.
#include "kernels/cuda/cost.h"
#include "kernels/sample/cuda/block_search.cuh"
#include "kernels/sample/sample.h"

namespace millrace {
namespace {

constexpr int kSlots = 64;  // candidates per warp; if a warp has more, the later steps scan the whole row
constexpr float kLowest = -INFINITY, kLargest = 3.402823466e38f;

struct Params {
  float* logits;
  int64_t stride;
  int cols;
  const DrawRow* rows;
  const LogitChange* changes;
  int32_t *ids, *chosen;
};

// Maps floats to unsigned integers in the same order.
__device__ uint32_t ordered_bits(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // turns -0 into 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ float value_of(uint32_t key) { return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key); }

struct Shared {
  BlockSearch::Space search;
  unsigned long long parts[kWarps];
  float thread_best[kThreads];
  float values[kWarps * kSlots];
  int ids[kWarps * kSlots], counts[kWarps];
};

// The kept tokens of a row: those with keys above `key`, and those with equal keys up to index last_equal.
struct Kept {
  uint32_t key = 0;
  int last_equal = 0x7fffffff;  // index
  float least_share = 0;        // weight relative to the most likely token
};

class Row {
 public:
  __device__ Row(const Params& p, Shared& shared)
      : s_(shared),
        search_(shared.search),
        draw_(p.rows[blockIdx.x]),
        logits_(p.logits + blockIdx.x * p.stride),
        cols_(p.cols),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void change(const LogitChange* changes) {
    for (int i = draw_.repeated + thread_; i < draw_.counted; i += kThreads) {
      float& x = logits_[changes[i].token];
      x = x > 0 ? x / changes[i].value : x * changes[i].value;
    }
    __syncthreads();
    for (int i = draw_.counted + thread_; i < draw_.biased; i += kThreads)
      logits_[changes[i].token] -= changes[i].value;
    __syncthreads();
    for (int i = draw_.biased + thread_; i < draw_.end; i += kThreads) logits_[changes[i].token] += changes[i].value;
    __syncthreads();
  }

  __device__ int draw() {
    const int likeliest = find_best();
    if (likeliest < 0 || draw_.temperature == 0) return likeliest;
    scale_ = 1.44269504088896f / draw_.temperature;
    Kept kept;
    if (draw_.top_k > 0 && draw_.top_k < cols_) {
      kept = keep_top_k();
      if (draw_.top_p < 1) kept = keep_top_p(kept);
    } else if (draw_.top_p < 1) {
      kept = keep_top_p_of_all();
    } else if (draw_.min_p > 0) {
      pick([&](float x) { return share_of(x) >= draw_.min_p; });
    }
    kept.least_share = draw_.min_p;
    const auto weight = [&](int i) { return is_kept(kept, i) ? weight_of(logit(i)) : 0; };
    const unsigned long long total = search_.total_of(cols_, weight);
    const double at = draw_.unit * static_cast<double>(total);
    const int found = search_.locate(cols_, min(static_cast<unsigned long long>(at), total - 1), weight, -1);
    return found < 0 ? likeliest : ids_ != nullptr ? ids_[found] : found;
  }

 private:
  __device__ float logit(int i) const { return fminf(logits_[i], kLargest); }
  __device__ uint32_t key_of(int i) const { return ordered_bits(logit(i)); }
  __device__ float share_of(float logit) const { return exp2f((logit - best_) * scale_); }
  __device__ unsigned long long weight_of(float logit) const { return __float2ull_rn(share_of(logit) * kWholeWeight); }

  __device__ bool is_kept(const Kept& kept, int i) const {
    if (!(logits_[i] > kLowest)) return false;  // NaN too
    const uint32_t key = key_of(i);
    if (key < kept.key || (key == kept.key && i > kept.last_equal)) return false;
    return kept.least_share == 0 || share_of(logit(i)) >= kept.least_share;
  }

  // Index of the largest logit, or -1 if none is above -infinity. Leaves each thread's largest logit in thread_best.
  __device__ int find_best() {
    float best = kLowest;
    int id = -1;
#pragma unroll 8
    for (int i = thread_; i < cols_; i += kThreads) {
      const float value = logits_[i];
      if (value > best) best = value, id = i;
    }
    s_.thread_best[thread_] = fminf(best, kLargest);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, best, step);
      const int other_id = __shfl_xor_sync(~0u, id, step);
      if (other_id >= 0 && (id < 0 || other > best || (other == best && other_id < id))) best = other, id = other_id;
    }
    // Packs value and index into one integer: orders by value, then by lower index.
    if (thread_ % 32 == 0) {
      s_.parts[thread_ / 32] =
          id < 0 ? 0 : static_cast<unsigned long long>(ordered_bits(best)) << 32 | (0xffffffffu - unsigned(id));
    }
    __syncthreads();
    unsigned long long top = s_.parts[thread_ % kWarps];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const unsigned long long other = __shfl_xor_sync(~0u, top, step);
      top = other > top ? other : top;
    }
    __syncthreads();
    if (top == 0) return -1;
    const int found = static_cast<int>(0xffffffffu - static_cast<unsigned>(top));
    best_ = logit(found);
    return found;
  }

  // A key that at least k logits reach: the k-th largest of the per-thread maxima.
  __device__ uint32_t reached_by(int k) {
    if (k > kThreads / 2) return 0;
    auto left = static_cast<unsigned long long>(k);
    const auto key = [&](int i) { return ordered_bits(s_.thread_best[i]); };
    return search_.find_border(
        kThreads, left, key, [](int) { return true; }, [](int) { return 1ull; });
  }

  __device__ Kept keep_top_k() {
    const uint32_t bound = reached_by(draw_.top_k);
    pick([&](float x) { return ordered_bits(x) >= bound; });
    const auto takes_part = [&](int i) { return logits_[i] > kLowest && key_of(i) >= bound; };
    auto left = static_cast<unsigned long long>(draw_.top_k);
    const uint32_t key = search_.find_border(
        cols_, left, [&](int i) { return key_of(i); }, takes_part, [](int) { return 1ull; });
    return with_equals(key, left, takes_part);
  }

  // Total weight that top-p must keep, and the smallest weight to consider: tokens below it are discarded, since the
  // whole vocabulary at that weight would stay within the mass that top-p cuts off.
  struct Mass {
    unsigned long long wanted, least;  // weight to collect, and the smallest weight to consider
  };
  __device__ Mass mass_of(const Kept& kept) {
    const unsigned long long total =
        search_.total_of(cols_, [&](int i) { return is_kept(kept, i) ? weight_of(logit(i)) : 0; });
    const unsigned long long wanted = max(static_cast<unsigned long long>(double(draw_.top_p) * double(total)), 1ull);
    return {wanted, max((total - min(wanted, total)) / static_cast<unsigned>(cols_), 1ull)};
  }

  __device__ Kept keep_top_p(const Kept& before) { return keep_mass(before, mass_of(before)); }

  __device__ Kept keep_top_p_of_all() {
    const Mass mass = mass_of({});
    pick([&](float x) { return weight_of(x) >= mass.least; });
    return keep_mass({}, mass);
  }

  __device__ Kept keep_mass(const Kept& before, const Mass& mass) {
    const auto takes_part = [&](int i) { return is_kept(before, i) && weight_of(logit(i)) >= mass.least; };
    unsigned long long left = mass.wanted;
    const uint32_t key = search_.find_border(
        cols_, left, [&](int i) { return key_of(i); }, takes_part, [&](int i) { return weight_of(logit(i)); });
    // Equal keys have equal weights, so this many of them supply the rest.
    const unsigned long long each = max(weight_of(value_of(key)), 1ull);
    return with_equals(key, (left + each - 1) / each, takes_part);
  }

  // Collects the logits above -infinity for which wanted(logit) holds, in index order. The later steps scan only these,
  // or the whole row if they are too many.
  template <class Wanted>
  __device__ void pick(Wanted wanted) {
    constexpr int kAtOnce = 8;
    const int warp = thread_ / 32, lane = thread_ % 32, begin = warp * BlockSearch::span_of(cols_),
              end = min(begin + BlockSearch::span_of(cols_), cols_);
    int count = 0;
    for (int first = begin; first < end; first += 32 * kAtOnce) {
      float x[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * 32 + lane;
        x[j] = i < end ? logits_[i] : kLowest;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool mine = x[j] > kLowest && wanted(fminf(x[j], kLargest));
        const unsigned all = __ballot_sync(~0u, mine);
        const int at = count + __popc(all & ((1u << lane) - 1));
        if (mine && at < kSlots) {
          s_.values[warp * kSlots + at] = fminf(x[j], kLargest);
          s_.ids[warp * kSlots + at] = first + j * 32 + lane;
        }
        count += __popc(all);
      }
    }
    if (lane == 0) s_.counts[warp] = count;
    __syncthreads();
    if (__all_sync(~0u, s_.counts[lane] <= kSlots)) close_ranks(warp, lane, count);
    __syncthreads();
  }

  // Compacts the warps' picks into one contiguous list.
  __device__ void close_ranks(int warp, int lane, int count) {
    int before = 0, total = 0;
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp ? s_.counts[w] : 0;
      total += s_.counts[w];
    }
    float values[kSlots / 32];
    int ids[kSlots / 32];
#pragma unroll
    for (int j = 0; j < kSlots / 32; ++j) {
      values[j] = s_.values[warp * kSlots + j * 32 + lane];
      ids[j] = s_.ids[warp * kSlots + j * 32 + lane];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kSlots / 32; ++j) {
      if (j * 32 + lane >= count) continue;
      s_.values[before + j * 32 + lane] = values[j];
      s_.ids[before + j * 32 + lane] = ids[j];
    }
    logits_ = s_.values;
    ids_ = s_.ids;
    cols_ = total;
  }

  // Keeps the first `count` of the keys equal to `key`.
  template <class TakesPart>
  __device__ Kept with_equals(uint32_t key, unsigned long long count, TakesPart takes_part) {
    const auto equal = [&](int i) { return takes_part(i) && key_of(i) == key ? 1ull : 0ull; };
    return {key, search_.locate(cols_, max(count, 1ull) - 1, equal, cols_), 0};
  }

  Shared& s_;
  BlockSearch search_;
  const DrawRow draw_;
  float* logits_;
  const int* ids_ = nullptr;  // token ids of the picks
  int cols_;
  const int thread_;
  float best_ = 0, scale_ = 0;
};

__global__ void __launch_bounds__(kThreads) sample_rows(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  Row row(p, shared);
  row.change(p.changes);
  const int id = row.draw();
  if (threadIdx.x != 0) return;
  p.ids[blockIdx.x] = id;
  if (p.chosen != nullptr) p.chosen[blockIdx.x] = id;
}

class CudaSample final : public Kernel<SampleOp> {
 public:
  std::string_view name() const override { return "cuda_rows"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.cols <= kMostColumns;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(40.0 * double(p.rows * p.cols), hardware, 0.1);
  }
  void run(const Args& a, const Executor& executor) const override {
    const Params params{
        a.logits.row<float>(0), a.logits.stride, static_cast<int>(a.logits.cols), a.rows, a.changes, a.ids, a.chosen};
    sample_rows<<<static_cast<unsigned>(a.logits.rows), kThreads, 0, static_cast<cudaStream_t>(executor.queue)>>>(
        params);
  }
};

}  // namespace

KernelList<SampleOp> SampleOp::cuda() {
  static const CudaSample kernel;
  return {&kernel};
}

}  // namespace millrace
