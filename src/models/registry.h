// Constructors of the architectures that registry.cpp lists, one per file.
#pragma once

#include "models/model.h"

namespace millrace {

ModelMaker make_llama, make_qwen2, make_qwen3, make_gemma2, make_gemma3, make_phi3, make_opt, make_chatglm,
    make_ministral3, make_smollm3, make_olmo2, make_granite, make_seed_oss, make_hunyuan, make_ernie4_5, make_exaone4,
    make_gemma, make_gemma4, make_cohere, make_gpt2, make_gpt_neox, make_nemotron, make_phi, make_stablelm,
    make_starcoder2, make_gpt_oss, make_mixtral, make_qwen2_moe, make_qwen3_moe, make_olmoe, make_glm4_moe,
    make_granitemoe, make_ernie4_5_moe, make_minimax_m2, make_phimoe, make_deepseek, make_minicpm3, make_qwen3_next,
    make_qwen3_5, make_qwen3_5_moe, make_bert, make_nomic_bert, make_modernbert, make_lfm2, make_lfm2_moe, make_mamba2,
    make_granitemoehybrid, make_falcon_h1, make_nemotron_h;
HeadMaker make_deepseek_heads, make_glm4_moe_heads, make_qwen3_next_heads, make_qwen3_5_heads, make_qwen3_5_moe_heads;

}  // namespace millrace
