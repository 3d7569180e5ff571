// Measured kernel times on this machine, kept between runs: problem -> (kernel, microseconds), best first.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct Measurement {
  std::string kernel;
  double us = 0;
};

class PlanCache {
 public:
  // The file for this hardware and build. Another build reads another file.
  static std::filesystem::path file_for(const std::string& hardware_id, int threads);
  static PlanCache load(const std::filesystem::path& file);  // a missing or damaged file is an empty cache
  void save(const std::filesystem::path& file) const;        // atomically

  const std::vector<Measurement>* find(std::string_view op, const std::string& problem) const;
  void put(std::string_view op, const std::string& problem, std::vector<Measurement> measurements);
  bool has(std::string_view op) const;  // whether any problem of this op was measured
  size_t size() const { return plans_.size(); }

 private:
  std::map<std::string, std::vector<Measurement>> plans_;
};

}  // namespace millrace
