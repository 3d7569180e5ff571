// What each architecture has of its own in a GGUF file: keys, and changes of tensors. architecture_rules.cpp lists
// them.
#pragma once

#include "convert/architecture_keys.h"

namespace millrace {

using AddKeys = void(ArchitectureKeys& keys);
using EditTensor = void(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out);

// dense_keys.cpp
AddKeys llama_keys, plain_keys, without_window_keys, gemma_keys, gemma2_keys, gemma3_keys, phi3_keys, chatglm_keys,
    ministral3_keys, smollm3_keys, olmo2_keys, granite_keys, exaone4_keys, cohere_keys, cohere2_keys, starcoder2_keys,
    gpt2_keys, gpt_neox_keys, phi2_keys, stablelm_keys, nemotron_keys;
// mixture_keys.cpp
AddKeys granitemoe_keys, gpt_oss_keys, qwen2_moe_keys, qwen3_moe_keys, olmoe_keys, glm4_moe_keys, ernie4_5_moe_keys,
    minimax_m2_keys, phimoe_keys;
// latent_attention.cpp
AddKeys deepseek2_keys, minicpm3_keys;
EditTensor deepseek2_tensor, minicpm3_tensor;
// gemma4.cpp
AddKeys gemma4_keys;
EditTensor gemma4_tensor;
// recurrent.cpp
AddKeys mamba2_keys, granite_hybrid_keys, nemotron_h_keys, lfm2_keys, lfm2_moe_keys;
EditTensor recurrent_tensor;
// falcon_h1.cpp
AddKeys falcon_h1_keys;
EditTensor falcon_h1_tensor;
// encoder.cpp
AddKeys bert_keys, nomic_bert_keys, modern_bert_keys, gemma_embedding_keys;
EditTensor encoder_tensor;
// delta_net.cpp
AddKeys qwen3_next_keys, qwen3_5_keys;
EditTensor delta_net_tensor;

}  // namespace millrace
