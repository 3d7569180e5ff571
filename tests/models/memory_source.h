// A model in memory: a config and random tensors, for architectures that exist only in tests.
#pragma once

#include <list>
#include <random>

#include "formats/weight_source.h"

namespace millrace {

class MemorySource final : public WeightSource {
 public:
  MemorySource(const std::string& config, const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors)
      : WeightSource("a model in memory"), config_(Config::from_hf(config, "a model in memory")) {
    std::mt19937 random(7);
    std::vector<TensorInfo> all;
    for (const auto& [name, shape] : tensors) {
      auto& values = data_.emplace_back(static_cast<size_t>(*element_count(shape)));
      std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(shape.back())));
      for (float& value : values) value = shape.size() == 1 ? 1 + normal(random) : normal(random);
      all.push_back({name, DType::F32, "F32", shape, reinterpret_cast<const std::byte*>(values.data()),
                     values.size() * sizeof(float)});
    }
    add_tensors(std::move(all));
  }
  Convention convention() const override { return Convention::HuggingFace; }
  const Config& config() const override { return config_; }
  void release(const WeightView&) const override {}

 private:
  Config config_;
  std::list<std::vector<float>> data_;
};

}  // namespace millrace
