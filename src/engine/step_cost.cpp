#include "engine/step_cost.h"

#include <algorithm>

#include "dataflow/buckets.h"

namespace millrace {
namespace {

double copy_slot_us(Runner& runner) {
  const auto bytes = static_cast<double>(runner.rank().layout().bytes_per_slot());
  return 2 * bytes / (1e3 * std::max(1.0, runner.hardware().ceilings.read_gbs));  // reads and writes
}

}  // namespace

// States of one shape are copied at once, keys and values apart (StateCache::copy_page).
double copy_page_us(Runner& runner) {
  const StateLayout& layout = runner.rank().layout();
  const LoadOptions& options = runner.options();
  const auto bytes = static_cast<double>(layout.bytes_per_token(*options.kv_type)) * options.block_size;
  const Ceilings& ceilings = runner.hardware().ceilings;
  const auto shapes = layout.paged();
  const bool alike = std::all_of(shapes.begin(), shapes.end(), [&](const auto& shape) { return shape == shapes[0]; });
  return 2 * bytes / (1e3 * std::max(1.0, ceilings.read_gbs)) +
         2 * ceilings.region_us * static_cast<double>(alike ? 1 : shapes.size());
}

StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  const StepShape shape{rows, sequences, context, logit_rows};
  StepCost cost;
  OpTimes roof;
  runner.rank().dry_pass(shape, Ops::Mode::Expect, &cost.expected);
  runner.rank().dry_pass(shape, Ops::Mode::Roof, &roof);
  cost.roof_us = roof.total_us();
  return cost;
}

StepEstimate estimate_steps(Runner& runner, bool drafts) {
  constexpr int64_t kShort = 64, kLong = 4096, kDraft = 4;
  const int64_t rows = runner.options().rows, sequences = runner.options().sequences;
  const auto step_us = [&](const StepShape& shape) {
    OpTimes expected;
    runner.rank().dry_pass(shape, Ops::Mode::Expect, &expected);
    return expected.total_us();
  };
  const auto us = [&](int64_t m, int64_t context) {
    return step_us({m, m <= sequences ? m : 1, std::max(context, m), std::min(m, sequences)});
  };
  // The first row beyond a bucket runs other kernels and may cost much more.
  const auto fill = [](std::vector<std::pair<double, double>>& table, int64_t most, auto us_of_rows) {
    for (int64_t bucket : row_buckets(most)) {
      bucket = std::min(bucket, most);
      table.emplace_back(bucket, us_of_rows(bucket));
      if (bucket < most) table.emplace_back(bucket + 1, us_of_rows(bucket + 1));
    }
  };
  StepEstimate estimate;
  fill(estimate.by_rows, rows, [&](int64_t m) { return us(m, kShort); });
  const double decode_us = std::max(0.0, us(1, kLong) - us(1, kShort));
  estimate.decode_us_per_position = decode_us / (kLong - kShort);
  estimate.prefill_us_per_position =
      std::max(0.0, (us(rows, kLong) - us(rows, kShort)) / static_cast<double>(rows * (kLong - kShort)));
  if (!drafts) return estimate;
  // Every row of a draft has logits.
  fill(estimate.by_verified, std::min(rows, runner.options().logit_rows), [&](int64_t m) {
    return step_us({m, std::min(m, sequences), kShort + m, m});
  });
  if (runner.rank().layout().bytes_per_slot() > 0) estimate.copy_slot_us = copy_slot_us(runner);
  estimate.copy_page_us = copy_page_us(runner);
  const auto draft_us = [&](int64_t context) { return step_us({1 + kDraft, 1, context, 1 + kDraft}); };
  estimate.draft_us_per_position =
      std::max(0.0, draft_us(kLong) - draft_us(kShort) - decode_us) / static_cast<double>(kDraft * (kLong - kShort));
  return estimate;
}

}  // namespace millrace
