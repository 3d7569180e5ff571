// Whether measured plans make whole steps faster or at least not slower. Kernels that win alone may lose in a step,
// where weights and activations lie in other caches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/load_options.h"
#include "formats/weight_source.h"

namespace millrace {

enum class StepKind { Single, Batch, Prompt };  // one row; up to one row per sequence; more rows
std::string_view name(StepKind kind);           // "single streams", "batches", "prompts"

// `sequences`: most that run at the same time.
StepKind kind_of_step(int64_t rows, int64_t sequences);

// The same step with the plans before and after tuning, one right after the other.
struct StepTurn {
  double before_us = 0, after_us = 0;
};

double median_ratio(std::span<const StepTurn> turns);  // of times after to before; infinite without a valid turn
// True if the median over the turns is at most 1 % slower than before, which a measurement cannot tell from equal.
// Plans without a valid turn do not survive.
bool survives(std::span<const StepTurn> turns);

using StepTurns = std::map<StepKind, std::vector<StepTurn>>;

// Loads the model in turns with either plans and times its steps.
StepTurns time_in_turns(const std::shared_ptr<const WeightSource>& source, const LoadOptions& options,
                        std::shared_ptr<const PlanCache> before, std::shared_ptr<const PlanCache> after,
                        const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
