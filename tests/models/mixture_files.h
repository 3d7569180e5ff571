// GGUF files of a tiny mixture: the same random weights in the formats and the form that a test asks for.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>

#include "formats/gguf_writer.h"
#include "fresh_seed.h"
#include "models/golden.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace millrace {

struct MixtureForm {
  std::function<DType(const std::string& name)> format;   // of a matrix; `name` as in the file
  bool one_tensor_per_expert = false;                     // blk.0.ffn_up.3.weight, as the first converters wrote
  bool widened = false;                                   // stored in f32, with the values that `format` has
  std::string without = {};                               // a tensor that the file lacks
  std::function<void(GgufMetadataBuilder&)> change = {};  // of the metadata, after `drop` is removed
  std::string drop = {};
};

// Relative to the size of b. Unrelated logits have a distance of about 1.4.
inline double rms_distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double difference = 0, all = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t j = 0; j < b[i].size(); ++j) {
      difference += std::pow(double(a[i][j]) - double(b[i][j]), 2);
      all += std::pow(double(b[i][j]), 2);
    }
  }
  return std::sqrt(difference / all);
}

class MixtureFiles {
 public:
  explicit MixtureFiles(const std::string& shape = "synthetic:tiny-experts:f32")
      : source_(open_weights(shape)), folder_(testing::TempDir() + "millrace_mixture_" + std::to_string(fresh_seed())) {
    std::filesystem::create_directories(folder_);
    std::mt19937 random(fresh_seed());
    for (const TensorInfo& tensor : source_->tensors()) {
      std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(tensor.shape.back())));
      auto& values = values_[tensor.name];
      values.resize(static_cast<size_t>(*element_count(tensor.shape)));
      for (float& value : values) value = tensor.shape.size() == 1 ? 1 + normal(random) : normal(random);
    }
  }
  ~MixtureFiles() { std::filesystem::remove_all(folder_); }

  // Sets the routers' weights, so that a test knows the choices.
  void set_routers(const std::function<float(int64_t expert, int64_t column)>& weight) {
    for (const TensorInfo& tensor : source_->tensors()) {
      if (tensor.name.find("ffn_gate_inp") == std::string::npos) continue;
      auto& values = values_.at(tensor.name);
      for (int64_t i = 0; i < std::ssize(values); ++i)
        values[static_cast<size_t>(i)] = weight(i / tensor.shape[1], i % tensor.shape[1]);
    }
  }

  std::string write(const MixtureForm& form) {
    std::vector<GgufTensor> tensors;
    std::vector<std::vector<std::byte>> data;
    for (const TensorInfo& tensor : source_->tensors()) {
      const auto& values = values_.at(tensor.name);
      const size_t at = tensor.name.find("_exps.");
      const bool apart = form.one_tensor_per_expert && at != std::string::npos;
      const int64_t parts = apart ? tensor.shape[0] : 1, each = std::ssize(values) / parts;
      for (int64_t i = 0; i < parts; ++i) {
        std::string name = tensor.name;
        if (apart) name.replace(at, 6, fmt::format(".{}.", i));
        if (name == form.without) continue;
        auto shape = apart ? std::vector(tensor.shape.begin() + 1, tensor.shape.end()) : tensor.shape;
        const bool matrix = shape.size() > 1 && tensor.name.find("ffn_gate_inp") == std::string::npos;
        const DType format = matrix ? form.format(name) : DType::F32;
        data.push_back(encoded(values.data() + i * each, each, format, form.widened));
        tensors.push_back({name, form.widened ? DType::F32 : format, std::move(shape)});
      }
    }
    GgufMetadataBuilder metadata;
    for (const auto& entry : source_->gguf()->entries()) {
      if (entry.key != form.drop) metadata.copy(entry);
    }
    if (form.change) form.change(metadata);
    const std::string path = fmt::format("{}/{}.gguf", folder_, ++written_);
    GgufWriter writer(path, metadata, tensors);
    for (const auto& bytes : data) writer.write(bytes);
    writer.finish();
    return path;
  }

 private:
  static std::vector<std::byte> encoded(const float* values, int64_t n, DType format, bool widened) {
    std::vector<std::byte> bytes(row_bytes(format, n));
    quantize_row(format, values, bytes.data(), n);
    if (!widened) return bytes;
    std::vector<std::byte> plain(static_cast<size_t>(n) * sizeof(float));
    dequantize_row(format, bytes.data(), reinterpret_cast<float*>(plain.data()), n);
    return plain;
  }

  std::unique_ptr<WeightSource> source_;
  std::string folder_;
  std::map<std::string, std::vector<float>> values_;
  int written_ = 0;
};

}  // namespace millrace
