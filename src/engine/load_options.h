// Options of loading a model: device, sizes, precision.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "dataflow/plan_cache.h"
#include "hardware/device.h"
#include "tensor/dtype.h"

namespace millrace {

class Model;
class WeightSource;
struct Architecture;

// The model that draft heads read (models/draft_heads.h).
struct DraftTarget {
  const Model* model = nullptr;  // null: these are no draft heads
  DType features = DType::F32;   // number format of its hidden states
};

struct LoadOptions {
  DeviceChoice device = DeviceChoice::Cpu;
  const Architecture* architecture = nullptr;  // null: as named in the file
  int threads = 0;                             // 0: one per usable core
  std::shared_ptr<ThreadPool> pool;            // null: a pool of its own; models on one machine should share one
  std::string isa;                             // "": the best of this machine
  std::map<std::string, std::string> forced;   // op -> kernel
  std::shared_ptr<const PlanCache> plans;      // null: those kept for this machine
  bool exact = false;                          // f32 activations, KV and arithmetic
  std::optional<DType> kv_type;                // default: f16 on a CPU, the working type on a GPU, f32 if exact
  int64_t context = 0;                         // positions per sequence; 0: the model's, or as many as memory allows
  bool past_training = false;                  // allow a context beyond the trained one, for benchmarks
  bool context_is_most = false;                // a model trained for fewer positions takes those
  int64_t sequences = 1;                       // most that run at the same time
  int64_t branches = 0;                        // places in a step beyond these, for branches of drafts
  int64_t rows = 0;                            // tokens per step; 0: enough to keep the device busy
  int64_t logit_rows = 0;                      // rows with logits per step; at least one per sequence
  // Capacity of the KV cache in positions over all sequences. 0: a whole context for each sequence. kWhatFits: as much
  // as memory allows, at least one context; sequences then wait for pages or are preempted.
  int64_t kv_tokens = 0;
  static constexpr int64_t kWhatFits = -1;
  // GPU only: bytes of its memory that the model may take; 0: what is free. Weights beyond that stay in host memory,
  // and the CPU computes their layers.
  int64_t gpu_memory = 0;
  // Bytes of main memory that the model may take; 0: what is free. Experts beyond that stay in the mapped file.
  int64_t cpu_memory = 0;
  bool cpu_as_card = false;  // CPU only, for tests: gpu_memory limits the CPU as it limits a GPU
  // For tests; default: what is expected to be faster. split_experts: the experts of each layer are divided between the
  // GPU and host memory; false: those of some layers are in host memory as a whole. stream_rows: least rows of a step
  // that copies them to the GPU.
  std::optional<bool> split_experts;
  std::optional<int64_t> stream_rows;
  std::optional<bool>
      join_shared_experts;  // for tests: shared experts join the mixture; default: if a GPU holds all weights
  int block_size = 64;
  std::shared_ptr<const WeightSource> heads;  // draft heads to come: steps keep the hidden states that they read
  DraftTarget drafts_for;                     // loads the draft heads of the source
  // CPU only: writes the whole KV cache once at load. Otherwise the operating system zeroes memory at the first write,
  // up to 2 MB for the keys and values of each layer, and a step during generation can take 100 ms.
  bool populate_kv = false;
  // Low-rank adapters (engine/adapters.h). `adapters`: steps may use some that are loaded later, so buffers are set
  // aside for any layer; otherwise only for the layers that `adapter_files` change.
  struct AdapterPath {
    std::string name, path;
  };
  std::vector<AdapterPath> adapter_files;  // loaded with the model
  bool adapters = false;
  bool batch_invariant = false;  // results of a row do not depend on the rest of the batch: slower
  bool measure = false;          // measure the machine's ceilings if they are unknown
  bool device_draws = false;  // CPU only, for tests: sample beside the logits and run steps ahead, as a GPU always does

  int64_t places() const { return sequences + branches; }  // sequences and branches of a step
};

}  // namespace millrace
