// An architecture: its config, its weights, its state, its forward pass. A ragged batch goes in, logits come out.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cache/state_layout.h"
#include "models/decoder_config.h"
#include "models/pass.h"
#include "models/weights.h"

namespace millrace {

class Model {
 public:
  virtual ~Model() = default;
  virtual const DecoderConfig& config() const = 0;
  // Sequences longer than this use other rope frequencies (longrope): their cached keys must be computed again. 0:
  // none.
  virtual int64_t long_from() const { return 0; }

  // Fills pass.logits. It is also run dry, to learn which kernels, buffers and workspace its steps need: what it asks
  // for may depend on the batch's shape only. No allocation, no exception.
  virtual void forward(Pass& pass) const = 0;
};

// Declares the tensors and the state of a model, and returns it. Touches no weights.
using ModelMaker = std::unique_ptr<Model>(const WeightSource& source, Weights& weights, StateLayout& state);

// One line per architecture in registry.cpp.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> gguf;  // general.architecture
  std::vector<std::string_view> hf;    // architectures[0] of config.json
  ModelMaker* make;
};
std::span<const Architecture> architectures();

// Refuses an unknown architecture by name.
const Architecture& find_architecture(const WeightSource& source);

}  // namespace millrace
