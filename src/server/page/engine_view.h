// What the live view shows, as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/engine_stats.h"
#include "engine/runner.h"

namespace millrace {

// GET /engine: the engine as of its last step.
nlohmann::ordered_json engine_view(const EngineStats& stats);

// GET /engine/dataflow: the kernel chosen for each problem, for one sequence, for eight and for a prompt. Plans are
// decided when a model is loaded: this is made once, before the engine starts.
nlohmann::ordered_json dataflow_view(Runner& runner);

}  // namespace millrace
