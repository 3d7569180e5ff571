#include "formats/quantize_recipe.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace millrace {
namespace {

constexpr std::array kRecipes{
    QuantizeRecipe{"F32", DType::F32, false, 0},        QuantizeRecipe{"F16", DType::F16, false, 1},
    QuantizeRecipe{"BF16", DType::BF16, false, 32},     QuantizeRecipe{"Q8_0", DType::Q8_0, false, 7},
    QuantizeRecipe{"Q4_0", DType::Q4_0, false, 2},      QuantizeRecipe{"Q4_1", DType::Q4_1, false, 3},
    QuantizeRecipe{"Q5_0", DType::Q5_0, false, 8},      QuantizeRecipe{"Q5_1", DType::Q5_1, false, 9},
    QuantizeRecipe{"Q2_K", DType::Q2_K, false, 10},     QuantizeRecipe{"Q3_K", DType::Q3_K, false, 11},
    QuantizeRecipe{"Q4_K", DType::Q4_K, false, 14},     QuantizeRecipe{"Q5_K", DType::Q5_K, false, 16},
    QuantizeRecipe{"Q6_K", DType::Q6_K, false, 18},     QuantizeRecipe{"IQ4_NL", DType::IQ4_NL, false, 25},
    QuantizeRecipe{"IQ4_XS", DType::IQ4_XS, false, 30}, QuantizeRecipe{"Q4_K_M", DType::Q4_K, true, 15},
    QuantizeRecipe{"Q5_K_M", DType::Q5_K, true, 17},    QuantizeRecipe{"MXFP4", DType::MXFP4, false, 38},
};

// "blk.12.ffn_down.weight" -> 12
int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// The first and last eighth of the layers, and every third of the others.
bool deserves_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

DType wanted(const QuantizeRecipe& recipe, const TensorRole& tensor) {
  // Published MXFP4 mixtures have four bits in their experts only.
  const bool is_expert = tensor.name.find("_exps.") != std::string_view::npos;
  if (recipe.dtype == DType::MXFP4 && tensor.has_experts) return is_expert ? DType::MXFP4 : DType::BF16;
  // This matrix produces the logits: it gets at least six bits.
  const bool is_output = tensor.name == (tensor.has_output ? "output.weight" : "token_embd.weight");
  if (is_output) return recipe.dtype == DType::Q8_0 ? DType::Q8_0 : DType::Q6_K;
  const bool is_sensitive = tensor.name.ends_with(".attn_v.weight") || tensor.name.ends_with(".ffn_down.weight") ||
                            tensor.name.ends_with(".ffn_down_exps.weight");
  if (recipe.more_bits && is_sensitive && deserves_more_bits(layer_of(tensor.name), tensor.layers)) return DType::Q6_K;
  return recipe.dtype;
}

// For rows that are not a multiple of 256: a small-block format with at least as many bits.
DType in_small_blocks(DType dtype) {
  switch (dtype) {
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::IQ4_XS:
      return DType::IQ4_NL;
    case DType::Q4_K:
      return DType::Q5_0;
    case DType::Q5_K:
      return DType::Q5_1;
    case DType::Q6_K:
      return DType::Q8_0;
    default:
      return dtype;
  }
}

}  // namespace

std::span<const QuantizeRecipe> all_recipes() { return kRecipes; }

const QuantizeRecipe* find_recipe(std::string_view name) {
  const auto same = [&](const QuantizeRecipe& r) {
    return r.name.size() == name.size() && strncasecmp(r.name.data(), name.data(), name.size()) == 0;
  };
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), same);
  return found == kRecipes.end() ? nullptr : found;
}

std::optional<DType> dtype_for(const QuantizeRecipe& recipe, const TensorRole& tensor) {
  const bool is_matrix = tensor.shape.size() >= 2 && tensor.name.ends_with(".weight");
  const auto has = [&](std::string_view part) { return tensor.name.find(part) != std::string_view::npos; };
  // Routers of mixtures stay in f32: an error there chooses other experts.
  if (!is_matrix || has("_norm.") || has("ffn_gate_inp")) return std::nullopt;
  if (has("ssm_conv1d") || has("shortconv.conv.")) return std::nullopt;  // a few values per channel
  // Small, and added to every token.
  if (tensor.name == "position_embd.weight" || tensor.name == "token_types.weight") return std::nullopt;
  if (!is_quantized(recipe.dtype)) return recipe.dtype;
  const int64_t cols = tensor.shape.back();
  DType dtype = wanted(recipe, tensor);
  if (cols % info(dtype).block != 0) dtype = in_small_blocks(dtype);
  return cols % info(dtype).block == 0 ? dtype : DType::F16;
}

}  // namespace millrace
