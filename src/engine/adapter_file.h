// Reads a low-rank adapter as its file stores it: a PEFT folder (adapter_config.json, adapter_model.safetensors) or a
// GGUF file of the type "adapter". What would change results and is not supported is refused by name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/tensor_info.h"
#include "formats/weight_source.h"

namespace millrace {

// The two matrices that change one weight: W + scale * B A.
struct AdapterPair {
  std::string module;      // the weight in the file's convention: "layers.0.mlp.up_proj", "blk.0.ffn_up.weight"
  TensorInfo a, b;         // [rank, k], [n, rank]; of an embedding in GGUF, `a` is [k, rank]
  bool embedding = false;  // k counts the vocabulary
  int64_t rank = 0;
  double scale = 1;
  // Experts of a mixture (engine/adapter_experts.h): the index of the one that it changes, or their number if stacked.
  int64_t expert = -1, experts = 0;
  bool is_old_stack = false;  // PEFT before 0.19.1 may have written it (engine/adapter_experts.h)
};

struct AdapterFile {
  std::string origin;
  WeightSource::Convention convention = WeightSource::Convention::HuggingFace;
  std::string architecture;  // of the models it is for, as GGUF files name it; empty: not said
  std::vector<MappedFile> files;
  std::vector<AdapterPair> pairs;  // by module
};

AdapterFile read_adapter(const std::filesystem::path& path);

// The name of a module without the prefixes in which exporters differ: "model.layers.0.mlp.up_proj" and
// "base_model.model.model.language_model.layers.0.mlp.up_proj" are both "layers.0.mlp.up_proj". Of a mixture's modules
// with two names, which the versions of transformers or a model from a GGUF file may not share, it is one.
std::string plain_module(std::string_view name);

}  // namespace millrace
