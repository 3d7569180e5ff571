#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/scores.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// One query vector against the positions that it attends to, in two passes over the keys: largest score, then weights.
class OneQuery {
 public:
  OneQuery(const AttentionArgs& args, const SequenceSlice& sequence, int row, int head)
      : args_(args),
        sequence_(sequence),
        kv_head_(head / (args.heads / args.kv.kv_heads)),
        first_(seen_by(args, sequence, row).begin),
        end_(seen_by(args, sequence, row).end),
        sink_(args.sinks != nullptr ? args.sinks + head : nullptr),
        q_(args.q.row<float>(sequence.first_row + row) + int64_t{head} * args.kv.key_dim) {}

  void write(float* out) const {
    double largest = score(first_);
    for (int position = first_ + 1; position < end_; ++position) largest = std::max(largest, score(position));
    if (sink_ != nullptr) largest = std::max<double>(largest, *sink_);
    const KvLayer& kv = args_.kv;
    const int n = kv.value_dim;
    double total = sink_ != nullptr ? std::exp(*sink_ - largest) : 0;
    std::fill(out, out + n, 0.0f);
    double sums[kMaxHeadDim] = {};
    for (int position = first_; position < end_; ++position) {
      const double weight = std::exp(score(position) - largest);
      float v[kMaxHeadDim];
      dequantize_row(kv.dtype, kv.values + kv.value_offset(page(position), kv_head_, position % kv.block_size), v, n);
      total += weight;
      for (int i = 0; i < n; ++i) sums[i] += weight * v[i];
    }
    for (int i = 0; i < n; ++i) out[i] = static_cast<float>(sums[i] / total);
  }

  static constexpr int kMaxHeadDim = 4096;

 private:
  int32_t page(int position) const { return sequence_.pages[static_cast<size_t>(position / args_.kv.block_size)]; }

  double score(int position) const {
    const KvLayer& kv = args_.kv;
    float k[kMaxHeadDim];
    dequantize_row(kv.dtype, kv.keys + kv.key_offset(page(position), kv_head_, position % kv.block_size), k,
                   kv.key_dim);
    double dot = 0;
    for (int i = 0; i < kv.key_dim; ++i) dot += static_cast<double>(q_[i]) * k[i];
    double s = std::clamp<double>(dot * args_.scale, -kScoreLimit, kScoreLimit);
    if (args_.softcap > 0) s = args_.softcap * std::tanh(s / args_.softcap);
    return s;
  }

  const AttentionArgs& args_;
  const SequenceSlice& sequence_;
  int kv_head_, first_, end_;
  const float* sink_;  // null: none
  const float* q_;
};

class ReferenceAttention : public AttentionKernel {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.key_dim, p.value_dim) &&
           std::max(p.key_dim, p.value_dim) <= OneQuery::kMaxHeadDim;
  }
  double estimate_us(const Problem& p, const Hardware&) const override {
    const double products = static_cast<double>(p.rows * p.context) * p.heads * (p.key_dim + p.value_dim);
    return products * 2e-3 / (p.rows > p.sequences ? 2 : 1);
  }

  void run(const Args& args, const Executor& executor) const override {
    for (const SequenceSlice& sequence : args.sequences) {
      const int64_t queries = int64_t{sequence.rows} * args.heads;
      executor.pool->parallel_for(queries, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int row = static_cast<int>(i / args.heads), head = static_cast<int>(i % args.heads);
          float* out = args.out.row<float>(sequence.first_row + row) + int64_t{head} * args.kv.value_dim;
          OneQuery(args, sequence, row, head).write(out);
        }
      });
    }
  }
};

}  // namespace

const Kernel<AttentionOp>* AttentionOp::reference() {
  static const ReferenceAttention kernel;
  return &kernel;
}

}  // namespace millrace
