#include "hardware/describe.h"

#include <nlohmann/json.hpp>

namespace millrace {

nlohmann::json describe(const Hardware& h) {
  const Ceilings& c = h.ceilings;
  nlohmann::json by_threads = nlohmann::json::array();
  for (const auto& rate : c.read_by_threads) by_threads.push_back({{"threads", rate.threads}, {"gbs", rate.gbs}});
  return {{"device", h.device == DeviceKind::Cpu ? "cpu" : "cuda"},
          {"name", h.name},
          {"id", h.id},
          {"isa", to_string(h.isa)},
          {"threads", h.threads},
          {"cores", h.cores},
          {"threads_per_core", h.threads_per_core},
          {"numa_nodes", h.numa_nodes},
          {"l1_bytes", h.l1_bytes},
          {"l2_bytes", h.l2_bytes},
          {"l3_bytes", h.l3_bytes},
          {"memory_bytes", h.memory_bytes},
          {"ceilings",
           {{"measured", c.measured},
            {"read_gbs", c.read_gbs},
            {"cache_gbs", c.cache_gbs},
            {"int8_gops", c.int8_gops},
            {"bf16_gflops", c.bf16_gflops},
            {"f16_gflops", c.f16_gflops},
            {"f32_gflops", c.f32_gflops},
            {"region_us", c.region_us},
            {"read_by_threads", by_threads}}}};
}

}  // namespace millrace
