// What the engine can say about itself: for metrics, logs and the live view.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/request.h"

namespace millrace {

struct StreamStats {  // one running choice
  RequestId id = 0;
  int32_t choice = 0;
  std::string client;
  int32_t prompt_tokens = 0, computed_tokens = 0, generated_tokens = 0;
};

struct EngineStats {
  // Now.
  int64_t running = 0;           // choices that hold pages
  int64_t waiting = 0;           // choices that wait for them, the preempted ones included
  int64_t kv_blocks = 0;         // pages there are
  int64_t kv_blocks_used = 0;    // held by running choices
  int64_t kv_blocks_cached = 0;  // held by the prefix tree only: free when needed
  double tokens_per_second = 0;  // generated, over the last seconds
  double step_ms = 0;            // the last steps, averaged
  int64_t step_rows = 0;         // of the last step
  std::vector<StreamStats> streams;

  // Since the start.
  uint64_t steps = 0;
  uint64_t steps_ahead = 0;  // of those: started while the one before them ran
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;  // of admitted prompts
  uint64_t cached_tokens = 0;  // of those: not computed, found in the prefix tree
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;   // checked in steps beside the last known token of their sequence
  uint64_t accepted_tokens = 0;  // of those: generated
  uint64_t preemptions = 0;
  uint64_t evicted_blocks = 0;
  double busy_seconds = 0;                    // spent in steps
  std::map<FinishReason, uint64_t> finished;  // choices
};

}  // namespace millrace
