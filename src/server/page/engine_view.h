// The live view's data as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/engine_stats.h"
#include "engine/runner.h"

namespace millrace {

// GET /engine: the engine's state after its last step.
nlohmann::ordered_json engine_view(const EngineStats& stats);

// GET /engine/dataflow: the chosen kernel for each problem, for one sequence, eight sequences and a prompt. Made once
// before the engine starts, since plans are fixed at load.
nlohmann::ordered_json dataflow_view(Runner& runner);

}  // namespace millrace
