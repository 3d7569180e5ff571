#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sample/sample.h"

namespace millrace {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity(), kLargest = std::numeric_limits<float>::max();

// The tokens that can still be drawn, most likely first.
class Choice {
 public:
  Choice(const float* logits, int64_t cols) {
    for (int64_t i = 0; i < cols; ++i) {
      if (logits[i] > kLowest) tokens_.push_back({std::min(logits[i], kLargest), static_cast<int32_t>(i), 0, 0});
    }
    std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
  }

  int32_t draw(const DrawRow& row) {
    if (tokens_.empty()) return -1;
    if (row.temperature == 0) return tokens_.front().id;
    if (row.top_k > 0 && static_cast<size_t>(row.top_k) < tokens_.size())
      tokens_.resize(static_cast<size_t>(row.top_k));
    weigh(row.temperature);
    if (row.top_p < 1) keep_mass(row.top_p);
    std::erase_if(tokens_, [&](const Token& t) { return t.share < row.min_p; });
    std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    auto target = static_cast<uint64_t>(row.unit * static_cast<double>(total()));
    for (const Token& t : tokens_) {
      if (target < t.weight) return t.id;
      target -= t.weight;
    }
    return tokens_.back().id;
  }

 private:
  struct Token {
    float logit;
    int32_t id;
    float share;  // weight relative to the most likely token
    uint64_t weight;
  };

  void weigh(float temperature) {
    const float best = tokens_.front().logit;
    for (Token& t : tokens_) {
      t.share = std::exp((t.logit - best) / temperature);
      t.weight = static_cast<uint64_t>(std::llrint(t.share * kWholeWeight));
    }
  }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const Token& t : tokens_) sum += t.weight;
    return sum;
  }
  void keep_mass(float p) {
    const auto target = static_cast<uint64_t>(static_cast<double>(p) * static_cast<double>(total()));
    uint64_t sum = 0;
    size_t kept = 0;
    do {
      sum += tokens_[kept++].weight;
    } while (kept < tokens_.size() && sum < target);
    tokens_.resize(kept);
  }

  std::vector<Token> tokens_;
};

class ReferenceSample final : public Kernel<SampleOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return 0.1 * double(p.rows * p.cols); }

  void run(const Args& a, const Executor&) const override {
    for (int64_t i = 0; i < a.logits.rows; ++i) {
      const DrawRow& row = a.rows[i];
      float* logits = a.logits.row<float>(i);
      for (int32_t c = row.repeated; c < row.end; ++c) {
        float& x = logits[a.changes[c].token];
        const float value = a.changes[c].value;
        x = c >= row.biased ? x + value : c >= row.counted ? x - value : x > 0 ? x / value : x * value;
      }
      a.ids[i] = Choice(logits, a.logits.cols).draw(row);
      if (a.chosen != nullptr) a.chosen[i] = a.ids[i];
    }
  }
};

}  // namespace

KernelList<SampleOp> SampleOp::cpu() {
  static const ReferenceSample kernel;
  return {&kernel};
}

std::string to_string(const SampleOp::Problem& p) { return fmt::format("sample {}x{}", p.rows, p.cols); }

}  // namespace millrace
