// An architecture: config, weights, state and forward pass. forward() maps a ragged batch to logits.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cache/state_layout.h"
#include "models/decoder_config.h"
#include "models/pass.h"
#include "models/weights.h"

namespace millrace {

// Hidden states that a step keeps for draft heads, [rows, width], in the working type.
struct FeatureTaps {
  std::vector<int> layers;  // the residual stream before each of these layers, side by side; an index equal to the
                            // number of layers means behind the last one
  bool last = false;        // instead of `layers`: the hidden state after the final norm
  bool any() const { return last || !layers.empty(); }
};

// Weights that draft heads share with their target.
struct ModelEnds {
  const WeightView* embedding = nullptr;
  const Linear* head = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const DecoderConfig& config() const = 0;
  // Sequences longer than this use other RoPE frequencies (longrope), so their keys must be computed again. 0: no
  // longrope.
  virtual int64_t long_from() const { return 0; }

  // A model that pools has no logits: forward() fills pass.last with one row of this width for each sequence, and each
  // slice of the batch is a whole sequence. 0: the model has logits.
  virtual int64_t pooled_width() const { return 0; }
  bool pools() const { return pooled_width() > 0; }
  virtual bool pools_to_scores() const { return false; }  // the row is a score for each label (a cross-encoder)
  // GGUF files and Hugging Face folders store the rows of linear layers in the same order, except for
  // Weights::paired_heads. An adapter of the other convention then fits.
  virtual bool keeps_row_order() const { return false; }
  virtual bool has_token_types() const { return false; }  // the second text of a pair has token type 1

  FeatureTaps taps;  // forward() fills pass.features
  virtual bool gives_features() const { return false; }
  virtual ModelEnds ends() const { return {}; }
  virtual bool is_draft_head() const { return false; }  // the batch has features

  // Fills pass.logits. Dry passes also call it, to learn which kernels, buffers and workspace a step needs, so its
  // requests may depend only on the shape of the batch. Must not allocate or throw.
  virtual void forward(Pass& pass) const = 0;
};

// Declares the tensors and the state of a model, and returns the model. Reads no weights.
using ModelMaker = std::unique_ptr<Model>(const WeightSource& source, Weights& weights, StateLayout& state);

// The same for the heads of a checkpoint that predict further tokens (models/draft_heads.h).
using HeadMaker = std::unique_ptr<Model>(const WeightSource& source, Weights& weights, StateLayout& state,
                                         const Model& target);

// One entry per architecture in registry.cpp.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> gguf;  // general.architecture
  std::vector<std::string_view> hf;    // architectures[0] of config.json
  ModelMaker* make;
  HeadMaker* make_heads = nullptr;  // null: its checkpoints carry no heads, or they are not implemented
};
std::span<const Architecture> architectures();

// Throws for an unknown architecture and names it.
const Architecture& find_architecture(const WeightSource& source);

}  // namespace millrace
