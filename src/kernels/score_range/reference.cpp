#include <algorithm>
#include <array>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/attention/scores.h"
#include "kernels/score_range/score_range.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr int kMaxHeadDim = 4096;

// The largest score of one query.
float largest_score(const AttentionArgs& a, const SequenceSlice& s, int row, int head) {
  const int last = s.past + row, first = a.window > 0 ? std::max(0, last - a.window + 1) : 0;
  const int kv_head = head / (a.heads / a.kv.kv_heads), block = a.kv.block_size;
  const float* q = a.q.row<float>(s.first_row + row) + int64_t{head} * a.kv.key_dim;
  std::array<float, kMaxHeadDim> key;
  float largest = -kScoreLimit;
  for (int position = first; position <= last; ++position) {
    const size_t at = a.kv.key_offset(s.pages[static_cast<size_t>(position / block)], kv_head, position % block);
    dequantize_row(a.kv.dtype, a.kv.keys + at, key.data(), a.kv.key_dim);
    float dot = 0;
    for (int i = 0; i < a.kv.key_dim; ++i) dot += q[i] * key[static_cast<size_t>(i)];
    largest = std::max(largest, dot * a.scale);  // std::max ignores a NaN second argument
  }
  largest = std::min(largest, kScoreLimit);
  return a.softcap > 0 ? a.softcap * std::tanh(largest / a.softcap) : largest;
}

// Reads each key once per query: calibration runs once per model, never in a step.
class ReferenceScoreRange final : public Kernel<ScoreRangeOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.key_dim) && p.key_dim <= kMaxHeadDim;
  }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return static_cast<double>(p.rows * p.context) * p.heads * p.key_dim * 2e-3;
  }
  void run(const Args& args, const Executor& executor) const override {
    const AttentionArgs& a = args.attention;
    executor.pool->parallel_for(a.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head) {
        ScoreRange& range = args.ranges[head];
        for (const SequenceSlice& s : a.sequences) {
          for (int row = 0; row < s.rows; ++row) {
            const float largest = largest_score(a, s, row, static_cast<int>(head));
            range.least = std::min(range.least, largest);
            range.most = std::max(range.most, largest);
          }
        }
      }
    });
  }
};

}  // namespace

KernelList<ScoreRangeOp> ScoreRangeOp::cpu() {
  static const ReferenceScoreRange kernel;
  return {&kernel};
}

}  // namespace millrace
