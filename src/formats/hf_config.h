// config.json as transformers 4 and 5 write it, brought to one spelling: version 5's.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace {

// Lifts text_config's values to the top, then
//   torch_dtype                                     -> dtype
//   rope_theta, rope_scaling, partial_rotary_factor -> rope_parameters {rope_theta, rope_type, partial_rotary_factor,
//   ...} gemma3's rope_local_base_freq                   -> rope_parameters {full_attention {...}, sliding_attention
//   {...}}
// Old keys stay where they were. Values of the wrong kind are left for Config to complain about.
nlohmann::json normalize_hf_config(nlohmann::json config);

}  // namespace millrace
