// Maps an adapter's matrices to the layers of a model and packs them as the ops read them (kernels/lora).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_file.h"
#include "models/model.h"

namespace millrace {

struct PackedAdapter {
  struct Layer {
    int site = 0;
    LoraWeights weights;  // a, b and place: offsets in `bytes` until the adapter lies in device memory
    size_t a = 0, b = 0;
    std::optional<size_t> place = {};

    // With its matrices in a copy of `bytes`.
    LoraWeights at(const std::byte* memory) const;
  };
  std::string origin;
  std::vector<std::byte> bytes;
  std::vector<Layer> layers;
  int64_t rank = 0;  // the largest
};

// Throws for an adapter that does not fit the model: unknown layers, other shapes, numbers that are not finite.
// `format`: F32, F16 or BF16.
PackedAdapter pack_adapter(const AdapterFile& file, const Weights& weights, const Model& model, DType format);

}  // namespace millrace
