#include "engine/measure/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/step_batch.h"

namespace millrace {

Calibration calibrate(Runner& runner, std::span<const int32_t> tokens,
                      const std::function<void(int64_t, int64_t)>& progress) {
  const auto total = static_cast<int32_t>(std::min<int64_t>(std::ssize(tokens), runner.options().context));
  if (total == 0) fail(ErrorKind::Usage, "the text to calibrate with has no tokens");
  BlockTable table = runner.state().new_table(total);
  MR_ASSERT(table.reserve(total));
  const Slot slot = runner.state().new_slot();
  StepBatch step(runner.options().rows, 1, runner.options().logit_rows);
  runner.rank().observe_scores(true);
  for (int32_t done = 0; done < total;) {
    progress(done, total);
    const auto rows = static_cast<int32_t>(std::min<int64_t>(total - done, runner.options().rows));
    step.clear();
    step.add(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)), done, total, table.pages(),
             StepBatch::Logits::Last, slot.id());
    runner.forward(step.batch());
    done += rows;
  }
  progress(total, total);
  Calibration calibration = runner.rank().observed_scores();
  runner.rank().observe_scores(false);
  calibration.tokens = total;
  for (const ScoreRange& range : calibration.ranges) {
    if (!range.seen() || std::abs(range.least) >= 1e30f || std::abs(range.most) >= 1e30f)
      fail(ErrorKind::BadFile, "{}: scores are not numbers: its weights are damaged", runner.source().origin());
  }
  return calibration;
}

}  // namespace millrace
