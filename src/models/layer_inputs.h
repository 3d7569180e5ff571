// Inputs that each layer of a Gemma gets besides the residual stream: rows of a second embedding table plus a
// projection of the first embedding.
#pragma once

#include "models/blocks.h"

namespace millrace {

class LayerInputs {
 public:
  struct Layer {
    const Linear* gate = nullptr;  // [width, hidden]
    const Linear* out = nullptr;   // [hidden, width]
    const Vector* norm = nullptr;  // [hidden]
  };

  // Reads the width from the config; 0: the model has none. `hf` is the prefix of a Hugging Face text model.
  LayerInputs(Weights& weights, const DecoderConfig& config, const std::string& hf);
  int64_t width() const { return width_; }
  Layer load_layer(Weights::Layer& at, const DecoderConfig& config) const;

  // sqrt(2) times the inputs of all layers, [rows, layers * width].
  Matrix all(Pass& pass, Matrix hidden) const;
  // hidden += norm(out(act(gate(hidden)) * input)). `input`: the layer's columns of all().
  void add(Pass& pass, const Layer& layer, Activation activation, Matrix input, Matrix hidden) const;

 private:
  int64_t width_ = 0;
  const WeightView* table_ = nullptr;   // [vocab, layers * width]
  const Linear* projection_ = nullptr;  // [layers * width, hidden]
  const Vector* norm_ = nullptr;        // [width]
};

}  // namespace millrace
