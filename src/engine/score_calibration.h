// The largest scores of each attention head of a model, as `millrace calibrate` found and kept them.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/weight_source.h"
#include "kernels/score_range/score_range.h"

namespace millrace {

struct Calibration {
  int64_t tokens = 0;  // that were looked at
  int heads = 0;
  std::vector<ScoreRange> ranges;  // [layers][heads]

  int64_t layers() const { return heads > 0 ? static_cast<int64_t>(ranges.size()) / heads : 0; }
  std::span<const ScoreRange> layer(int64_t i) const {
    return std::span(ranges).subspan(static_cast<size_t>(i * heads), static_cast<size_t>(heads));
  }
  // The unified maximum of each head of a layer, placed so that the range seen has equal shares of the room above and
  // below that keys and values of this format leave. Empty: some head's scores spread over more than that.
  std::vector<float> phi(int64_t layer, DType kv) const;

  // Its file goes by the model's tensors and some of their bytes, not by its name: fine-tunes differ in their scores.
  static std::filesystem::path file_for(const WeightSource& source);
  static std::optional<Calibration> load(const std::filesystem::path& file, int64_t layers, int heads);
  void save(const std::filesystem::path& file, const std::string& model) const;  // atomically
};

}  // namespace millrace
