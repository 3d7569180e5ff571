// The end of a model that makes one vector per sequence: pooling, then linear layers. The last layer of a cross-encoder
// gives the scores of its labels.
#pragma once

#include "models/layer_norm_decoder.h"
#include "models/pooling_settings.h"

namespace millrace {

struct PoolingHead {
  enum class Function : uint8_t { None, Tanh, Gelu };
  struct Layer {
    const Linear* linear = nullptr;
    Function function = Function::None;
    std::optional<LayerNormWeights> norm;  // behind the function
  };
  PoolKind kind = PoolKind::Mean;
  std::vector<Layer> layers;
  int64_t width = 0;    // of the result
  bool scores = false;  // the result is a score for each label, not an embedding

  // Fills pass.last from the hidden states of all rows.
  void forward(Pass& pass, Matrix hidden) const;
};

// Pooling and dense layers as the files say, mean if they say nothing.
PoolingHead load_pooling_head(Weights& weights, const PoolingSettings& settings, const DecoderConfig& config);

// Whether a Hugging Face config names a classifier of sequences, or a GGUF file has one.
bool is_classifier(const Weights& weights);
// The number of labels of a classifier.
int64_t count_labels(const Weights& weights);

}  // namespace millrace
