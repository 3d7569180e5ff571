#include "hardware/describe.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "hardware/ceilings.h"

namespace millrace {
namespace {

struct Field {
  const char* name;
  double Ceilings::*value;
};
constexpr Field kFields[] = {
    {"read_gbs", &Ceilings::read_gbs},     {"cache_gbs", &Ceilings::cache_gbs},
    {"int8_gops", &Ceilings::int8_gops},   {"bf16_gflops", &Ceilings::bf16_gflops},
    {"f16_gflops", &Ceilings::f16_gflops}, {"f32_gflops", &Ceilings::f32_gflops},
    {"region_us", &Ceilings::region_us},   {"cpu_share", &Ceilings::cpu_share},
};

double rounded(double value) { return std::round(value * 1000) / 1000; }

}  // namespace

nlohmann::json describe(const Ceilings& ceilings) {
  nlohmann::json json = {{"measured", ceilings.measured}, {"read_by_threads", nlohmann::json::array()}};
  for (const Field& field : kFields) json[field.name] = rounded(ceilings.*field.value);
  for (const ReadRate& rate : ceilings.read_by_threads) {
    json["read_by_threads"].push_back({{"threads", rate.threads}, {"gbs", rounded(rate.gbs)}});
  }
  return json;
}

nlohmann::json describe(const Hardware& hardware) {
  return {{"device", hardware.device == DeviceKind::Cpu ? "cpu" : "cuda"},
          {"name", hardware.name},
          {"id", hardware.id},
          {"isa", to_string(hardware.isa)},
          {"threads", hardware.threads},
          {"cores", hardware.cores},
          {"threads_per_core", hardware.threads_per_core},
          {"numa_nodes", hardware.numa_nodes},
          {"l1_bytes", hardware.l1_bytes},
          {"l2_bytes", hardware.l2_bytes},
          {"l3_bytes", hardware.l3_bytes},
          {"memory_bytes", hardware.memory_bytes},
          {"architecture", hardware.architecture},
          {"driver", hardware.driver},
          {"ceilings", describe(hardware.ceilings)}};
}

std::string in_words(const Hardware& h) {
  if (h.device == DeviceKind::Cuda) return fmt::format("{}, {} multiprocessors", h.name, h.cores);
  return fmt::format("{} ({}), {} thread{}", h.name, to_string(h.isa), h.threads, h.threads == 1 ? "" : "s");
}

std::optional<Ceilings> parse_ceilings(const nlohmann::json& json) {
  if (!json.is_object() || json.value("measured", nlohmann::json()) != true) return std::nullopt;
  Ceilings ceilings;
  ceilings.measured = true;
  for (const Field& field : kFields) {
    const auto found = json.find(field.name);
    if (found == json.end() || !found->is_number()) return std::nullopt;
    ceilings.*field.value = found->get<double>();
  }
  const auto rates = json.find("read_by_threads");
  if (rates == json.end() || !rates->is_array()) return std::nullopt;
  for (const auto& rate : *rates) {
    const bool good = rate.is_object() && rate.contains("threads") && rate["threads"].is_number_integer() &&
                      rate.contains("gbs") && rate["gbs"].is_number();
    if (!good) return std::nullopt;
    ceilings.read_by_threads.push_back({rate["threads"].get<int>(), rate["gbs"].get<double>()});
  }
  return plausible(ceilings) ? std::optional(ceilings) : std::nullopt;
}

}  // namespace millrace
