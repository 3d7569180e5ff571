#include "engine/score_calibration.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/write_file.h"
#include "engine/fingerprint.h"

namespace millrace {
namespace {

// None if save() did not write the file for a model of this size.
std::optional<Calibration> read(const nlohmann::json& json, int64_t layers, int heads) {
  if (!json.is_object() || !json.contains("tokens") || !json["tokens"].is_number_integer()) return std::nullopt;
  if (!json.contains("layers") || !json["layers"].is_array()) return std::nullopt;
  Calibration c{json["tokens"], heads, {}};
  for (const auto& layer : json["layers"]) {
    if (!layer.is_array() || layer.size() != static_cast<size_t>(heads)) return std::nullopt;
    for (const auto& head : layer) {
      if (!head.is_array() || head.size() != 2 || !head[0].is_number() || !head[1].is_number()) return std::nullopt;
      const ScoreRange range{head[0], head[1]};
      if (!std::isfinite(range.least) || !std::isfinite(range.most) || !range.seen()) return std::nullopt;
      c.ranges.push_back(range);
    }
  }
  if (c.layers() != layers) return std::nullopt;
  return c;
}

}  // namespace

std::vector<float> Calibration::phi(int64_t i, DType kv) const {
  const UnifiedRoom room = unified_room(kv);
  std::vector<float> all;
  for (const ScoreRange& r : layer(i)) {
    if (!(r.most - r.least <= room.above + room.below)) return {};
    all.push_back(r.least + (r.most - r.least) * room.below / (room.above + room.below));
  }
  return all;
}

std::filesystem::path Calibration::file_for(const WeightSource& source) {
  return environment().cache / "plans" / fmt::format("scores-{:016x}.json", fingerprint(source));
}

std::optional<Calibration> Calibration::load(const std::filesystem::path& file, int64_t layers, int heads) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (text.empty()) return std::nullopt;
  auto calibration = read(read_json(text), layers, heads);
  if (!calibration) log().warn("{} is damaged and left unread; 'millrace calibrate' makes it anew", file.string());
  return calibration;
}

void Calibration::save(const std::filesystem::path& file, const std::string& model) const {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t i = 0; i < layers(); ++i) {
    auto& row = rows.emplace_back(nlohmann::json::array());
    for (const ScoreRange& range : layer(i)) row.push_back({range.least, range.most});
  }
  const nlohmann::json json = {{"model", model}, {"tokens", tokens}, {"layers", rows}};
  write_file(file, json_text(json) + "\n");
}

}  // namespace millrace
