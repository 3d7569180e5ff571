// The frequencies of rotary embedding with the scalings that stretch a model's context: linear, llama3, yarn, longrope.
#pragma once

#include <string>
#include <vector>

#include "models/decoder_config.h"

namespace millrace {

struct RopeFrequencies {
  std::vector<float> inverse;  // [rotary_dim / 2]
  float magnitude = 1;         // of cosines and sines

  // longrope: sequences longer than `long_from` turn by these instead; 0: there are none.
  int64_t long_from = 0;
  std::vector<float> inverse_long;
  float magnitude_long = 1;

  // Both tables where the kernels run (Weights::placed).
  const float* table = nullptr;
  const float* table_long = nullptr;
};

// `section` names the settings inside rope_parameters where a model has several (gemma3: "full_attention").
RopeFrequencies read_rope_frequencies(const WeightSource& source, const DecoderConfig& config,
                                      const std::string& section = "", double usual_theta = 10000);

RopeFrequencies plain_rope_frequencies(double theta, int rotary_dim);

}  // namespace millrace
