// How a model is loaded: on which device, how large, how exact.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "hardware/device.h"
#include "tensor/dtype.h"

namespace millrace {

struct Architecture;

struct LoadOptions {
  DeviceChoice device = DeviceChoice::Cpu;
  const Architecture* architecture = nullptr;  // null: the one that the file names
  int threads = 0;                             // 0: one per usable core
  std::shared_ptr<ThreadPool> pool;            // null: its own; models that share a machine share one
  std::string isa;                             // "": all this machine has
  std::map<std::string, std::string> forced;   // op -> kernel
  bool exact = false;                          // f32 activations, KV and arithmetic
  std::optional<DType> kv_type;                // default: f16 (a GPU: the working type), or f32 when exact
  int64_t context = 0;                         // positions per sequence; 0: the model's, or what memory allows
  bool past_training = false;                  // the context may exceed the model's: for benchmarks
  int64_t sequences = 1;                       // at once
  int64_t rows = 0;                            // tokens in one step; 0: enough to keep the device busy
  int64_t logit_rows = 0;                      // rows with logits in one step; at least one per sequence
  // Positions that the KV cache holds over all sequences. 0: the context for each of them. kWhatFits: as much of that
  // as memory allows, but at least one context; sequences then wait for pages, or are preempted.
  int64_t kv_tokens = 0;
  static constexpr int64_t kWhatFits = -1;
  int block_size = 64;
  // On a CPU: writes the whole KV cache once at load. Else the system clears memory when pages are first written to, up
  // to 2 MB for each layer's keys and values at once, and a step in the middle of streams takes a tenth of a second.
  bool populate_kv = false;
  bool batch_invariant = false;  // a row's results do not depend on what else is in the step: slower
  bool measure = false;          // measures the machine's ceilings if they are not known yet
  bool device_draws = false;     // on a CPU: choose tokens beside the logits and run steps ahead, as a GPU always does
};

}  // namespace millrace
