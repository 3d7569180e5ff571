// RoPE frequencies and the scalings that extend a model's context: linear, llama3, yarn, longrope.
#pragma once

#include <string>
#include <vector>

#include "dataflow/linear_layer.h"
#include "models/decoder_config.h"

namespace millrace {

struct RopeFrequencies {
  std::vector<float> inverse;  // [rotary_dim / 2]
  float magnitude = 1;         // factor of cosines and sines

  // longrope: sequences longer than `long_from` use these frequencies; 0: no longrope.
  int64_t long_from = 0;
  std::vector<float> inverse_long;
  float magnitude_long = 1;

  // Both tables in device memory (Weights::placed).
  const Vector* table = nullptr;
  const Vector* table_long = nullptr;
};

// `section`: key inside rope_parameters, for models with several ropes (gemma3: "full_attention"). `gguf_truncates`:
// YaRN rounds the borders between kept and scaled dimensions to whole dimensions, which GGUF files do not say.
RopeFrequencies read_rope_frequencies(const WeightSource& source, const DecoderConfig& config,
                                      const std::string& section = "", double usual_theta = 10000,
                                      bool gguf_truncates = true);

RopeFrequencies plain_rope_frequencies(double theta, int rotary_dim);

}  // namespace millrace
