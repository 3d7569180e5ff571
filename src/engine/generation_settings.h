// The model's recommended sampling settings: generation_config.json, or the matching GGUF keys.
#pragma once

#include <optional>
#include <vector>

#include "formats/weight_source.h"
#include "sampling/sampling_params.h"

namespace millrace {

struct GenerationSettings {
  std::optional<SamplingParams> sampling;
  std::vector<int32_t> end_tokens;
};

GenerationSettings read_generation_settings(const WeightSource& source);

}  // namespace millrace
