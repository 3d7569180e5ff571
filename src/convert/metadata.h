// The metadata that describes a model in a GGUF file, with the keys of llama.cpp's converter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "models/model.h"

namespace millrace {

// A model read from a Hugging Face folder, about to become a GGUF file.
struct ConvertedModel {
  const WeightSource& source;
  const DecoderConfig& config;
  std::span<const DeclaredTensor> tensors;
  std::string architecture;  // general.architecture

  const Config& keys() const { return source.config(); }
  bool has(std::string_view tensor) const;
};

// The name that llama.cpp has for the folder's architecture. Throws Unsupported, with the name, if it has none or if
// its conversion is not implemented.
std::string gguf_architecture(const WeightSource& source);

// True if llama.cpp rotates adjacent pairs of this architecture, where transformers rotates halves of heads.
bool rotates_pairs(std::string_view gguf_architecture);

// A tensor's name in files of this architecture, where it differs from the usual one.
std::string own_name(std::string_view gguf_architecture, const std::string& usual);

// Keys below the architecture's name. Throws Unsupported for a setting that GGUF files cannot express, with its name.
void add_model_metadata(const ConvertedModel& model, GgufMetadataBuilder& out);

// Tensors that GGUF files have in the place of config values: divisors of RoPE frequencies.
struct ComputedTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<ComputedTensor> rope_tensors(const ConvertedModel& model);

}  // namespace millrace
