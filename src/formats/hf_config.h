// Normalizes config.json of transformers 4 and 5 to the keys of version 5.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace {

// Lifts text_config's values to the top, adds defaults of transformers (hf_defaults.h), then renames:
// torch_dtype -> dtype;
// rope_theta, rope_scaling, partial_rotary_factor -> rope_parameters {rope_theta, rope_type, ...};
// gpt_neox's rotary_emb_base, rotary_pct -> rope_parameters {rope_theta, partial_rotary_factor};
// gemma3's and olmo3's rope_local_base_freq -> rope_parameters {full_attention {...}, sliding_attention {...}}.
// Old keys stay. Values of the wrong type stay, too; Config reports them when they are read.
nlohmann::json normalize_hf_config(nlohmann::json config);

}  // namespace millrace
