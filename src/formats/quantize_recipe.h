// The number format of each tensor of a quantized model. The rules are llama.cpp's, so that a file type has the same
// size and composition in both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace millrace {

struct QuantizeRecipe {
  std::string_view name;  // "Q4_0", "Q4_K_M"
  DType dtype;            // of most matrices
  bool more_bits;         // Q6_K for the value and down projections of the most sensitive layers
  uint32_t file_type;     // general.file_type
};

std::span<const QuantizeRecipe> all_recipes();
const QuantizeRecipe* find_recipe(std::string_view name);  // any case; null: unknown

// A tensor as the recipe sees it, with GGUF names.
struct TensorRole {
  std::string_view name;
  std::span<const int64_t> shape;
  int64_t layers;   // number of layers in the model
  bool has_output;  // false: token_embd.weight is also the output matrix
  bool has_experts = false;
};

// nullopt: the tensor keeps its format (norms, biases, small tables).
std::optional<DType> dtype_for(const QuantizeRecipe& recipe, const TensorRole& tensor);

}  // namespace millrace
