// The experts of gpt-oss folders as GGUF has them: one matrix [experts, rows, cols] each for gate, up and down.
//
// Folders alternate gate and up in gate_up_proj: [E, hidden, 2 inner], transposed, if the weights are not quantized
// (the MXFP4 blocks of published models are handled in folder_quantization.h), and [E, 2 inner] in gate_up_proj_bias.
// They become gate_proj, up_proj and down_proj, and gate_proj_bias and up_proj_bias. down_proj_bias stays.
#pragma once

#include <span>
#include <vector>

#include "formats/config.h"
#include "formats/derived_tensors.h"

namespace millrace {

// Empty for other models. Tensors of an unexpected rank stay as they are; the architecture then misses its own.
std::vector<DerivedTensor> gpt_oss_tensors(std::span<const TensorInfo> tensors, const Config* config);

}  // namespace millrace
