#include "dataflow/plan_cache.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/build_id.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/write_file.h"

namespace millrace {
namespace {

std::string key_of(std::string_view op, const std::string& problem) { return std::string(op) + " " + problem; }

}  // namespace

std::filesystem::path PlanCache::file_for(const std::string& hardware_id, int threads) {
  return environment().cache / "plans" / fmt::format("{}-t{}-{}.json", hardware_id, threads, build_id());
}

PlanCache PlanCache::load(const std::filesystem::path& file) {
  PlanCache cache;
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (text.empty()) return cache;
  const auto json = read_json(text);
  if (!json.is_object()) {
    log().warn("{} is damaged and left unread", file.string());
    return cache;
  }
  for (const auto& [key, list] : json.items()) {
    if (!list.is_array()) continue;
    std::vector<Measurement> measurements;
    for (const auto& entry : list) {
      if (!entry.is_object() || !entry.contains("kernel") || !entry["kernel"].is_string()) continue;
      if (!entry.contains("us") || !entry["us"].is_number()) continue;
      const double us = entry["us"];
      if (std::isfinite(us) && us > 0) measurements.push_back({entry["kernel"], us});
    }
    cache.plans_[key] = std::move(measurements);
  }
  return cache;
}

void PlanCache::save(const std::filesystem::path& file) const {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [key, measurements] : plans_) {
    auto& list = json[key] = nlohmann::json::array();
    for (const auto& m : measurements) list.push_back({{"kernel", m.kernel}, {"us", m.us}});
  }
  write_file(file, json_text(json, 1) + "\n");
}

const std::vector<Measurement>* PlanCache::find(std::string_view op, const std::string& problem) const {
  const auto found = plans_.find(key_of(op, problem));
  return found == plans_.end() ? nullptr : &found->second;
}

bool PlanCache::has(std::string_view op) const {
  const auto first = plans_.lower_bound(key_of(op, ""));
  return first != plans_.end() && first->first.starts_with(key_of(op, ""));
}

void PlanCache::put(std::string_view op, const std::string& problem, std::vector<Measurement> measurements) {
  std::sort(measurements.begin(), measurements.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
  plans_[key_of(op, problem)] = std::move(measurements);
}

}  // namespace millrace
