// The low-rank adapters of a model, by layer and adapter, as the ops read them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/lora/lora.h"

namespace millrace {

struct AdapterTable {
  static constexpr int kSlots = 256;        // adapters at the same time
  static constexpr int kEmbeddingSite = 0;  // the other sites are linear layers (Linear::site)

  LoraWeights* weights = nullptr;  // [sites][kSlots], in device memory
  DType format = DType::F32;       // of the matrices
  std::vector<int64_t> ranks;      // by site: the largest of an adapter, over all parts; 0: none has matrices for it
  std::vector<uint8_t> planned;    // by site: an adapter may have some; buffers and workspace are planned for them
  const LoraWeights* of_site(int site) const { return weights + int64_t{site} * kSlots; }
};

}  // namespace millrace
