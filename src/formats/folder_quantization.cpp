#include "formats/folder_quantization.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/rounding.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr ConfigKey kMethod{.hf = "quantization_config.quant_method"};
constexpr ConfigKey kTile{.hf = "quantization_config.weight_block_size"};
constexpr ConfigKey kActivations{.hf = "quantization_config.activation_scheme"};
constexpr std::string_view kScaleInv = "_scale_inv", kBlocks = "_blocks", kScales = "_scales", kGateUp = "gate_up_proj";
constexpr int64_t kGroup = 32;

using Index = std::unordered_map<std::string_view, const TensorInfo*>;

struct Tile {
  int64_t rows = 128, cols = 128;
};

Tile tile_of(const Config* config) {
  if (config == nullptr) return {};
  const auto sizes = config->optional_array<int64_t>(kTile);
  if (!sizes) return {};
  const bool plausible =
      sizes->size() == 2 && std::all_of(sizes->begin(), sizes->end(), [](int64_t n) { return n > 0 && n <= 1 << 20; });
  if (!plausible) config->fail_key(kTile, "must be two positive numbers");
  return {(*sizes)[0], (*sizes)[1]};
}

TensorInfo described(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  const int64_t cols = shape.back(), rows = cols == 0 ? 0 : *element_count(shape) / cols;
  const size_t bytes = static_cast<size_t>(rows) * row_bytes(dtype, cols);
  return {name, dtype, std::string(millrace::name(dtype)), std::move(shape), nullptr, bytes};
}

[[noreturn]] void fail_shape(const std::string& origin, const TensorInfo& tensor, std::span<const int64_t> expected) {
  fail(ErrorKind::BadFile, "{}: tensor '{}' should be {}, the file has {}", origin, tensor.name, to_string(expected),
       to_string(tensor.shape));
}

// Number `i` of a tensor of scales, which may be at any address.
float scale_at(const TensorInfo& scales, int64_t i) {
  if (scales.dtype == DType::F32) {
    float value;
    std::memcpy(&value, scales.data + i * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, scales.data + i * 2, sizeof bits);
  return scales.dtype == DType::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

DerivedTensor fp8_tensor(const TensorInfo& weight, const TensorInfo& scales, Tile tile, const std::string& origin) {
  if (weight.shape.size() < 2) fail(ErrorKind::BadFile, "{}: FP8 tensor '{}' is not a matrix", origin, weight.name);
  const int64_t rows = weight.shape.end()[-2], cols = weight.shape.back();
  const int64_t row_tiles = ceil_div(rows, tile.rows), col_tiles = ceil_div(cols, tile.cols);
  std::vector<int64_t> expected(weight.shape.begin(), weight.shape.end() - 2);
  expected.insert(expected.end(), {row_tiles, col_tiles});
  if (scales.shape != expected) fail_shape(origin, scales, expected);
  if (!scales.dtype || is_quantized(*scales.dtype)) {
    fail(ErrorKind::Unsupported, "{}: tensor '{}' is in {}; scales of FP8 weights must be F32, F16 or BF16", origin,
         scales.name, scales.dtype_name);
  }
  const auto row_of = [=](int64_t row) { return reinterpret_cast<const uint8_t*>(weight.data) + row * cols; };
  const auto first_scale_of = [=](int64_t row) {
    return (row / rows * row_tiles + row % rows / tile.rows) * col_tiles;
  };
  const std::vector<std::string> parts{weight.name, scales.name};
  if (cols % kGroup != 0 || tile.cols % kGroup != 0) {  // rows are not whole blocks: widened
    const auto widen = [=](int64_t begin, int64_t end, std::byte* out) {
      auto* number = reinterpret_cast<float*>(out);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          *number++ = scale_at(scales, first_scale_of(row) + col / tile.cols) * e4m3_to_f32(row_of(row)[col]);
        }
      }
    };
    return {described(weight.name, DType::F32, weight.shape), parts, widen};
  }
  const auto write = [=](int64_t begin, int64_t end, std::byte* out) {
    auto* block = reinterpret_cast<BlockF8_E4M3*>(out);
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* from = row_of(row);
      const int64_t first_scale = first_scale_of(row);
      for (int64_t col = 0; col < cols; col += kGroup, ++block) {
        block->d = scale_at(scales, first_scale + col / tile.cols);
        std::memcpy(block->qs, from + col, kGroup);
      }
    }
  };
  return {described(weight.name, DType::F8_E4M3, weight.shape), parts, write};
}

// The file pairs neighbours, kernels elements j and j + 16.
void reorder_nibbles(const uint8_t* from, uint8_t* to) {
  for (int i = 0; i < 8; ++i) {
    to[2 * i] = static_cast<uint8_t>((from[i] & 15) | from[8 + i] << 4);
    to[2 * i + 1] = static_cast<uint8_t>(from[i] >> 4 | (from[8 + i] & 0xf0));
  }
}

// Every `step`-th row of the file's from `first` on.
DerivedTensor mxfp4_tensor(const std::string& name, const TensorInfo& blocks, const TensorInfo& scales, int64_t step,
                           int64_t first) {
  const int64_t groups = scales.shape.back();
  std::vector<int64_t> shape = scales.shape;
  shape.back() *= kGroup;
  shape.end()[-2] /= step;
  const auto write = [=](int64_t begin, int64_t end, std::byte* out) {
    auto* block = reinterpret_cast<BlockMXFP4*>(out);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = (row * step + first) * groups;
      for (int64_t group = from; group < from + groups; ++group, ++block) {
        block->e = static_cast<uint8_t>(scales.data[group]);
        reorder_nibbles(reinterpret_cast<const uint8_t*>(blocks.data) + group * 16, block->qs);
      }
    }
  };
  return {described(name, DType::MXFP4, std::move(shape)), {blocks.name, scales.name}, write};
}

void add_mxfp4(const TensorInfo& blocks, const Index& index, const std::string& origin,
               std::vector<DerivedTensor>& all) {
  const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
  const auto found = index.find(name + std::string(kScales));
  if (found == index.end()) {
    fail(ErrorKind::BadFile, "{}: tensor '{}{}' is missing, the scales of '{}'", origin, name, kScales, blocks.name);
  }
  const TensorInfo& scales = *found->second;
  std::vector<int64_t> expected = scales.shape;
  expected.push_back(16);
  if (scales.shape.size() < 2 || scales.dtype_name != "U8" || blocks.shape != expected) {
    fail_shape(origin, blocks, expected);
  }
  if (!name.ends_with(kGateUp)) return all.push_back(mxfp4_tensor(name, blocks, scales, 1, 0));
  if (scales.shape.end()[-2] % 2 != 0) {
    fail(ErrorKind::BadFile, "{}: tensor '{}' has {} rows, not pairs of gate and up", origin, blocks.name,
         scales.shape.end()[-2]);
  }
  const std::string prefix = name.substr(0, name.size() - kGateUp.size());
  all.push_back(mxfp4_tensor(prefix + "gate_proj", blocks, scales, 2, 0));
  all.push_back(mxfp4_tensor(prefix + "up_proj", blocks, scales, 2, 1));
}

// Dimensions beyond this occur only in damaged files, beside a zero. Bounds the arithmetic on shapes.
bool is_plausible(const TensorInfo& tensor) {
  constexpr int64_t kLongest = int64_t{1} << 40;
  return std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t n) { return n <= kLongest; });
}

}  // namespace

std::vector<DerivedTensor> quantized_tensors(std::span<const TensorInfo> tensors, const Config* config,
                                             const std::string& origin) {
  Index index;
  for (const TensorInfo& tensor : tensors) {
    if (is_plausible(tensor)) index.emplace(tensor.name, &tensor);
  }
  std::vector<DerivedTensor> all;
  for (const TensorInfo& tensor : tensors) {
    if (!is_plausible(tensor)) continue;
    if (tensor.dtype_name == "F8_E4M3") {
      // Without tiles of scales the tensor stays listed as F8_E4M3, which cannot be run.
      const auto scales = index.find(tensor.name + std::string(kScaleInv));
      if (scales != index.end()) all.push_back(fp8_tensor(tensor, *scales->second, tile_of(config), origin));
    } else if (tensor.dtype_name == "U8" && tensor.name.ends_with(kBlocks)) {
      add_mxfp4(tensor, index, origin, all);
    }
  }
  return all;
}

void check_quantization(const Config& config) {
  if (!config.has({.hf = "quantization_config"})) return;
  const std::string method = config.optional_string(kMethod).value_or("");
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::Unsupported, "{}: {} is not supported; use a GGUF file or the unquantized model", config.origin(),
         what);
  };
  if (method == "mxfp4") return;
  if (method != "fp8") refuse("quantization method '" + method + "'");
  if (!config.has(kTile)) refuse("FP8 with one scale per tensor (quantization_config without weight_block_size)");
  const std::string activations = config.optional_string(kActivations).value_or("dynamic");
  if (activations != "dynamic") refuse("FP8 with activation_scheme '" + activations + "'");
}

}  // namespace millrace
