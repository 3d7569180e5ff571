// The score ranges that calibration records, against sums in double precision.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "attention_cases.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

TEST(ScoreRange, IsThatOfTheRowsLargestScores) {
  for (const AttentionCase& c : {AttentionCase{"plain", DType::F32, 6, 2, 20, 16, 0, 0, {{30, 5}, {0, 1}, {7, 12}}},
                                 AttentionCase{"window", DType::F32, 4, 4, 16, 16, 9, 0, {{40, 3}, {2, 20}}},
                                 AttentionCase{"softcap", DType::F32, 4, 1, 16, 16, 0, 5, {{11, 4}}, 3, 3}}) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random);
    std::map<std::tuple<int, int, int, int>, float> keys;
    batch.fill(
        [&](int s, int p, int h, int i) {
          return keys[{s, p, h, i}] = random.normal(c.k_scale);
        },
        [&](int, int, int, int) { return 0.0f; });
    TestMatrix unused(batch.rows(), batch.width());
    const AttentionArgs args = batch.args(unused);

    std::vector<std::pair<double, double>> expected(static_cast<size_t>(c.heads), {1e9, -1e9});
    int64_t row = 0;
    for (size_t s = 0; s < c.slices.size(); ++s) {
      for (int r = 0; r < c.slices[s].rows; ++r, ++row) {
        const int last = c.slices[s].past + r, first = c.window > 0 ? std::max(0, last - c.window + 1) : 0;
        for (int head = 0; head < c.heads; ++head) {
          double largest = -1e9;
          for (int p = first; p <= last; ++p) {
            double dot = 0;
            for (int i = 0; i < c.head_dim; ++i)
              dot += double(batch.q().at(row, int64_t{head} * c.head_dim + i)) *
                     keys[{static_cast<int>(s), p, head / (c.heads / c.kv_heads), i}];
            largest = std::max(largest, dot * args.scale);
          }
          if (c.softcap > 0) largest = c.softcap * std::tanh(largest / c.softcap);
          auto& [least, most] = expected[static_cast<size_t>(head)];
          least = std::min(least, largest);
          most = std::max(most, largest);
        }
      }
    }
    ThreadPool pool(2);
    std::vector<ScoreRange> ranges(static_cast<size_t>(c.heads));
    ScoreRangeOp::cpu().front()->run({args, ranges.data()}, {&pool, nullptr});
    for (size_t head = 0; head < ranges.size(); ++head) {
      EXPECT_NEAR(ranges[head].least, expected[head].first, 1e-4) << head;
      EXPECT_NEAR(ranges[head].most, expected[head].second, 1e-4) << head;
    }
  }
}

}  // namespace
}  // namespace millrace
