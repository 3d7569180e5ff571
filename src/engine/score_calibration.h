// The score range of each attention head of a model, as stored by `millrace calibrate`.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/weight_source.h"
#include "kernels/score_range/score_range.h"

namespace millrace {

struct Calibration {
  int64_t tokens = 0;  // of the calibration text
  int heads = 0;
  std::vector<ScoreRange> ranges;  // [layers][heads]

  int64_t layers() const { return heads > 0 ? static_cast<int64_t>(ranges.size()) / heads : 0; }
  std::span<const ScoreRange> layer(int64_t i) const {
    return std::span(ranges).subspan(static_cast<size_t>(i * heads), static_cast<size_t>(heads));
  }
  // The unified maximum (phi) of each head of a layer. It divides the observed range in the ratio of the room below and
  // above phi that the KV format allows. Empty: the scores of some head spread too far.
  std::vector<float> phi(int64_t layer, DType kv) const;

  // The file name is a fingerprint of tensors and some of their bytes, because fine-tunes of one name have different
  // scores.
  static std::filesystem::path file_for(const WeightSource& source);
  static std::optional<Calibration> load(const std::filesystem::path& file, int64_t layers, int heads);
  void save(const std::filesystem::path& file, const std::string& model) const;  // atomically
};

}  // namespace millrace
