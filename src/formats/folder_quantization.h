// Quantized weights of Hugging Face folders, presented as tensors that kernels read.
//
//   FP8 (DeepSeek, MiniMax, Qwen)  X [.., rows, cols] in E4M3 and X_scale_inv, one factor per tile of
//                                  weight_block_size: becomes X in DType::F8_E4M3, or in F32 if rows or tiles are not
//                                  whole blocks of 32
//   MXFP4 (gpt-oss)                X_blocks u8 [.., rows, groups, 16], byte b with elements 2 b (low nibble) and
//                                  2 b + 1, and X_scales u8 [.., rows, groups]: becomes X [.., rows, 32 groups] in
//                                  DType::MXFP4. gate_up_proj alternates rows of gate and up; it becomes gate_proj and
//                                  up_proj, as in GGUF (gpt_oss_experts.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/config.h"
#include "formats/derived_tensors.h"

namespace millrace {

// Throws BadFile if scales are missing or have the wrong shape. `config` may be null: a folder without config.json.
std::vector<DerivedTensor> quantized_tensors(std::span<const TensorInfo> tensors, const Config* config,
                                             const std::string& origin);

// Throws Unsupported if the folder's quantization_config names a method, or a variant of FP8, that is not implemented.
void check_quantization(const Config& config);

}  // namespace millrace
