// Counters and gauges of the engine, for metrics, logs and the live view.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/parked_states.h"
#include "engine/request.h"

namespace millrace {

struct StreamStats {  // one running choice
  RequestId id = 0;
  int32_t choice = 0;
  std::string client;
  int32_t prompt_tokens = 0, computed_tokens = 0, generated_tokens = 0;
};

struct EngineStats {
  // Current values.
  int64_t running = 0;           // choices that hold pages
  int64_t waiting = 0;           // choices that wait for pages, including preempted ones
  int64_t kv_blocks = 0;         // total
  int64_t kv_blocks_used = 0;    // held by running choices
  int64_t kv_blocks_cached = 0;  // held by the prefix tree only: evicted if needed
  int64_t snapshots = 0;         // of recurrent state, held by the prefix tree
  int64_t snapshot_bytes = 0;
  double tokens_per_second = 0;  // generated, averaged over a few seconds
  double step_ms = 0;            // moving average
  int64_t step_rows = 0;         // of the last step
  std::vector<StreamStats> streams;

  // Totals since the start.
  uint64_t steps = 0;
  uint64_t steps_ahead = 0;  // of those: started while the previous step ran
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;  // of admitted prompts
  uint64_t cached_tokens = 0;  // of those: found in the prefix tree, not computed
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;   // draft tokens that steps verified
  uint64_t accepted_tokens = 0;  // of those: accepted
  uint64_t preemptions = 0;
  uint64_t evicted_blocks = 0;
  double busy_seconds = 0;                    // time in steps
  std::optional<double> joules;               // energy of steps, if the device counts it
  std::map<FinishReason, uint64_t> finished;  // choices
  ParkStats parked;                           // current values and totals of parked sessions
};

}  // namespace millrace
