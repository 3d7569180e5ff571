// Which number format each tensor of a quantized model gets. The rules are llama.cpp's, so that a file of a given type
// has the size and the make-up that its name promises.
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
  bool more_bits;         // spend Q6_K on the value and down projections of the layers that need it most
  uint32_t file_type;     // general.file_type
};

std::span<const QuantizeRecipe> all_recipes();
const QuantizeRecipe* find_recipe(std::string_view name);  // any case; null: unknown

// What the recipe has to know about a tensor, in GGUF's names.
struct TensorRole {
  std::string_view name;
  std::span<const int64_t> shape;
  int64_t layers;   // of the model
  bool has_output;  // there is an output.weight; otherwise token_embd.weight serves as one
};

// None: the tensor stays as it is (norms, biases, small tables).
std::optional<DType> dtype_for(const QuantizeRecipe& recipe, const TensorRole& tensor);

}  // namespace millrace
