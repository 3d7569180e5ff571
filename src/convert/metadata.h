// The metadata that describes a model in a GGUF file, with the keys of llama.cpp's converter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/tensor_encoder.h"
#include "models/model.h"

namespace millrace {

// A model read from a Hugging Face folder, about to become a GGUF file.
struct ConvertedModel {
  const WeightSource& source;
  const DecoderConfig& config;
  std::span<const DeclaredTensor> tensors;
  std::string architecture;  // general.architecture

  const Config& keys() const { return source.config(); }
  const DeclaredTensor* find(std::string_view tensor) const;  // null: there is none
  bool has(std::string_view tensor) const { return find(tensor) != nullptr; }
  int64_t rows_of(std::string_view tensor) const;  // its outermost dimension; 0: there is none
  bool has_in_layer(int64_t layer, std::string_view tensor) const;
};

// A tensor of the file. Parts with a change of their own are stacked.
struct FileTensor {
  struct Part {
    std::vector<WeightView> pieces;  // stacked; pieces of some columns follow each other to form rows
    TensorChange change;
  };
  std::string name;
  std::vector<int64_t> shape;
  std::vector<WeightView> sources;  // of the folder's tensors, to fetch
  std::vector<Part> parts;
  bool transposed = false;    // the pieces of the only part are [columns, rows]
  std::string declared = {};  // the usual name, by which adapters know it
  int64_t paired = 0;         // heads whose rotary pairs become adjacent
};
// The tensors of the file, without those that are computed (below).
std::vector<FileTensor> file_tensors(const ConvertedModel& model);
// Views of the rows of [heads][2][half] in the order [heads][half][2]: pairs that are half a head apart become
// adjacent. A bias has rows of one value.
std::vector<WeightView> in_pairs(WeightView whole, bool bias, int64_t heads);

// The name that llama.cpp has for the folder's architecture. Throws Unsupported, with the name, if it has none or if
// its conversion is not implemented.
std::string gguf_architecture(const WeightSource& source);

// Keys below the architecture's name. Throws Unsupported for a setting that GGUF files cannot express, with its name.
void add_model_metadata(const ConvertedModel& model, GgufMetadataBuilder& out);

// Tensors that GGUF files have and the folder has not.
struct ComputedTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<ComputedTensor> rope_tensors(const ConvertedModel& model);  // divisors of RoPE frequencies
// Zeros in the place of absent biases without which llama.cpp does not load a model.
std::vector<ComputedTensor> missing_biases(const ConvertedModel& model);

}  // namespace millrace
