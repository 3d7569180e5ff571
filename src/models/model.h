// An architecture: its config, its weights, its forward pass. A ragged batch goes in, logits come out.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cache/state_cache.h"
#include "models/decoder_config.h"
#include "models/pass.h"
#include "models/weights.h"

namespace millrace {

class Model {
 public:
  virtual ~Model() = default;
  virtual const DecoderConfig& config() const = 0;
  virtual StateLayout state_layout() const {
    StateLayout layout;
    for (int64_t i = 0; i < config().layers; ++i)
      layout.paged({config().kv_heads, config().head_dim, config().head_dim});
    return layout;
  }
  // What each layer's attention asks for, with the batch left open: planned before the first step.
  virtual std::vector<AttentionProblem> attention_problems() const {
    const auto& c = config();
    const AttentionProblem one{
        .heads = c.heads, .kv_heads = c.kv_heads, .key_dim = c.head_dim, .value_dim = c.head_dim, .window = c.window};
    return std::vector<AttentionProblem>(static_cast<size_t>(c.layers), one);
  }
  // Sequences that grow beyond this length turn by other frequencies: what is cached of them must be computed again.
  // 0: never.
  virtual int64_t long_from() const { return 0; }
  // Widths of the activation buffers beyond the common ones.
  virtual PassWidths widths() const { return common_widths(config()); }

  // Fills pass.logits: one row for each of the batch's logit_rows. No allocation, no exception.
  virtual void forward(Pass& pass) const = 0;
};

// One line per architecture in registry.cpp.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> gguf;  // general.architecture
  std::vector<std::string_view> hf;    // architectures[0] of config.json
  std::unique_ptr<Model> (*make)(const WeightSource& source, Weights& weights);
};
std::span<const Architecture> architectures();

// Refuses an architecture it does not know by name.
const Architecture& find_architecture(const WeightSource& source);

}  // namespace millrace
