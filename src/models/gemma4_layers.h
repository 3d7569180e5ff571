// Gemma 4's layers as its config describes them: sizes that differ by layer, and the two ropes.
#pragma once

#include <vector>

#include "models/decoder_config.h"
#include "models/rope_frequencies.h"

namespace millrace {

struct Gemma4Layer {
  int head_dim = 0, kv_heads = 0, window = 0;
  int64_t feed_forward = 0;
  int64_t keys_of = 0;  // the layer that stores its keys and values
};
std::vector<Gemma4Layer> read_gemma4_layers(const WeightSource& source, const DecoderConfig& config);

// The rope of layers without a window. "proportional": the first pairs of a head rotate at the frequencies of the whole
// head, the others do not.
RopeFrequencies read_gemma4_rope(const WeightSource& source, DecoderConfig config, int head_dim);
// The rope of layers with a window.
RopeFrequencies read_gemma4_local_rope(const WeightSource& source, int head_dim);

}  // namespace millrace
