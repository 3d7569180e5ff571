#include "formats/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <random>

#include "base/error.h"
#include "formats/byte_vocabulary.h"
#include "formats/gguf_reader.h"
#include "formats/quantize_recipe.h"
#include "formats/synthetic_blueprint.h"
#include "formats/tiled_pattern.h"

namespace millrace {
namespace {

using Kind = SyntheticTensor::Kind;

// Llama 3.1's rope factors, as in its GGUF files: wavelengths beyond the trained context are multiplied by the factor,
// short ones stay, those between are interpolated.
std::vector<float> rope_factors(const SyntheticShape& shape) {
  constexpr double kTrained = 8192, kLowest = 1, kHighest = 4;
  std::vector<float> factors;
  for (int64_t i = 0; i < shape.head_dim / 2; ++i) {
    const double frequency = std::pow(double(shape.rope_base), -2.0 * double(i) / double(shape.head_dim));
    const double turns = kTrained * frequency / (2 * std::numbers::pi);
    const double blend = std::clamp((turns - kLowest) / (kHighest - kLowest), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - blend) / double(shape.rope_factor) + blend)));
  }
  return factors;
}

std::vector<float> random_vector(int64_t n, float mean, float spread) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(mean, spread);
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& number : numbers) number = normal(random);
  return numbers;
}

class Synthetic : public WeightSource {
 public:
  Synthetic(const std::string& model, const SyntheticShape& shape, SyntheticBlueprint blueprint,
            const QuantizeRecipe& recipe)
      : WeightSource(model), shape_(shape), blueprint_(std::move(blueprint)) {
    std::vector<TensorInfo> tensors;
    for (const SyntheticTensor& tensor : blueprint_.tensors) {
      tensors.push_back(describe(tensor, recipe));
      kinds_[tensor.name] = tensor.kind;
      if (tensor.kind == Kind::Matrix) matrix_bytes_[*tensors.back().dtype] += tensors.back().bytes;
    }
    add_tensors(std::move(tensors));
    read_config(recipe);
  }

  Convention convention() const override { return is_gguf() ? Convention::Gguf : Convention::HuggingFace; }
  const Config& config() const override { return *config_; }
  // With the vocabulary, which may have 10^5 tokens, so only those who ask for it wait for it.
  const GgufMetadata* gguf() const override {
    if (!is_gguf()) return nullptr;
    std::call_once(once_, [&] {
      GgufMetadataBuilder all = blueprint_.metadata;
      add_byte_vocabulary(shape_.vocab, all);
      with_vocabulary_ = std::make_unique<Metadata>(all, origin());
    });
    return &with_vocabulary_->read;
  }
  std::optional<std::string> text(std::string_view file_name) const override {
    if (is_gguf()) return std::nullopt;
    if (file_name == "tokenizer.json") return byte_tokenizer_json(shape_.vocab);
    if (file_name == "tokenizer_config.json") return byte_tokenizer_config();
    return std::nullopt;
  }
  void release(const WeightView&) const override {}  // all tensors share the pages

 protected:
  const std::byte* bytes_of(const TensorInfo& tensor) const override {
    const std::lock_guard lock(mutex_);
    const std::byte*& made = made_[tensor.name];
    if (made != nullptr) return made;
    if (kinds_.at(tensor.name) == Kind::Matrix) {
      auto& pattern = patterns_[*tensor.dtype];
      if (pattern == nullptr) pattern = std::make_unique<TiledPattern>(*tensor.dtype, matrix_bytes_.at(*tensor.dtype));
      return made = pattern->show(tensor.bytes, made_.size());
    }
    vectors_.push_back(small_tensor(tensor));
    return made = reinterpret_cast<const std::byte*>(vectors_.back().data());
  }

 private:
  struct Metadata {
    Metadata(const GgufMetadataBuilder& builder, const std::string& origin)
        : header(encode_gguf_header(builder, {})), read(read_gguf(std::as_bytes(std::span(header)), origin).metadata) {}
    std::string header;  // encoded as in a file
    GgufMetadata read;
  };

  bool is_gguf() const { return blueprint_.hf_config.empty(); }

  TensorInfo describe(const SyntheticTensor& tensor, const QuantizeRecipe& recipe) {
    if (tensor.kind == Kind::Shifts) {
      shifts_.resize(static_cast<size_t>(*element_count(tensor.shape)));
      const auto bytes = std::as_bytes(std::span(shifts_));
      return {tensor.name, std::nullopt, "I64", tensor.shape, bytes.data(), bytes.size()};
    }
    DType dtype = DType::F32;
    if (tensor.kind == Kind::Matrix) {
      const TensorRole role{tensor.role.empty() ? tensor.name : tensor.role, tensor.shape, shape_.layers, !shape_.tied,
                            shape_.experts > 0};
      dtype = dtype_for(recipe, role).value_or(DType::F32);
    }
    return {tensor.name,  dtype,   std::string(name(dtype)),
            tensor.shape, nullptr, row_bytes(dtype, *element_count(tensor.shape))};
  }

  void read_config(const QuantizeRecipe& recipe) {
    if (!is_gguf()) {
      config_ = std::make_unique<Config>(Config::from_hf(blueprint_.hf_config, origin()));
      return;
    }
    blueprint_.metadata.add_u32("general.file_type", recipe.file_type);
    keys_ = std::make_unique<Metadata>(blueprint_.metadata, origin());
    config_ = std::make_unique<Config>(Config::from_gguf(keys_->read));
  }

  std::vector<float> small_tensor(const TensorInfo& tensor) const {
    const Kind kind = kinds_.at(tensor.name);
    if (kind == Kind::RopeFactors) return rope_factors(shape_);
    constexpr float kFaint = 0.05f;
    constexpr float kDecay = -0.1f;
    const float mean = kind == Kind::Norm        ? 1.0f
                       : kind == Kind::FaintNorm ? kFaint
                       : kind == Kind::Decay     ? kDecay
                                                 : 0.0f;
    return random_vector(*element_count(tensor.shape), mean, 0.01f);
  }

  const SyntheticShape& shape_;
  SyntheticBlueprint blueprint_;
  std::unique_ptr<Metadata> keys_;  // without the vocabulary
  mutable std::once_flag once_;
  mutable std::unique_ptr<Metadata> with_vocabulary_;
  std::unique_ptr<Config> config_;
  std::unordered_map<std::string, Kind> kinds_;
  std::map<DType, size_t> matrix_bytes_;
  mutable std::mutex mutex_;
  mutable std::map<DType, std::unique_ptr<TiledPattern>> patterns_;
  mutable std::vector<std::vector<float>> vectors_;
  std::vector<int64_t> shifts_;
  mutable std::unordered_map<std::string, const std::byte*> made_;
};

template <class List>
std::string joined_names(const List& list) {
  std::string names;
  for (const auto& one : list) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  return names;
}

}  // namespace

std::unique_ptr<WeightSource> open_synthetic(const std::string& model) {
  const std::string_view rest = std::string_view(model).substr(kSyntheticPrefix.size());
  const size_t colon = std::min(rest.find(':'), rest.size());
  const std::string_view shape_name = rest.substr(0, colon);
  const std::string_view type_name = colon == rest.size() ? "F16" : rest.substr(colon + 1);
  constexpr std::string_view kHeads = "eagle3-";
  const bool heads = shape_name.starts_with(kHeads);
  const SyntheticShape* shape = find_synthetic_shape(shape_name.substr(heads ? kHeads.size() : 0));
  if (shape == nullptr) {
    fail(ErrorKind::Usage, "no synthetic shape '{}'; there are {}, and eagle3-SHAPE for the heads of one", shape_name,
         joined_names(synthetic_shapes()));
  }
  const QuantizeRecipe* recipe = find_recipe(type_name);
  if (recipe == nullptr) {
    fail(ErrorKind::Usage, "no number format '{}'; there are {}", type_name, joined_names(all_recipes()));
  }
  if (heads && (shape->heads == 0 || shape->feed_forward == 0))
    fail(ErrorKind::Usage, "no synthetic shape '{}': EAGLE-3 heads need attention and a feed-forward", shape_name);
  return std::make_unique<Synthetic>(model, *shape, heads ? draw_eagle3_blueprint(*shape) : draw_blueprint(*shape),
                                     *recipe);
}

}  // namespace millrace
