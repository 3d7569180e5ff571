// Constructors of the architectures that registry.cpp lists, one per file.
#pragma once

#include "models/model.h"

namespace millrace {

ModelMaker make_llama, make_qwen2, make_qwen3, make_gemma2, make_gemma3, make_phi3, make_opt, make_chatglm;
ModelMaker make_cohere, make_gpt2, make_gpt_neox, make_nemotron, make_phi, make_stablelm, make_starcoder2;

}  // namespace millrace
