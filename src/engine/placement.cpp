#include "engine/placement.h"

#include <algorithm>
#include <numeric>

namespace millrace {

double host_penalty_us(const Weights::Unit& unit, const PlacementRates& rates) {
  return rates.hand_over_us + unit.bytes_of_a_row * (1 / rates.host_gbs - 1 / rates.device_gbs) * 1e-3;
}

std::set<size_t> choose_host_units(const std::vector<Weights::Unit>& units, size_t bytes, const PlacementRates& rates) {
  std::vector<size_t> order;
  for (size_t i = units.size(); i-- > 0;) {
    if (units[i].bytes > 0) order.push_back(i);
  }
  const auto cost = [&](size_t i) { return host_penalty_us(units[i], rates) / static_cast<double>(units[i].bytes); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return units[a].experts != units[b].experts ? units[a].experts : cost(a) < cost(b);
  });
  std::vector<size_t> chosen;
  size_t freed = 0;
  for (const size_t i : order) {
    if (freed >= bytes) break;
    chosen.push_back(i);
    freed += units[i].bytes;
  }
  // The last unit may free far more than was missing, so that smaller ones before it can stay on the device.
  std::set<size_t> on_host(chosen.begin(), chosen.end());
  for (const size_t i : chosen) {
    if (freed < bytes || freed - bytes < units[i].bytes) continue;
    freed -= units[i].bytes;
    on_host.erase(i);
  }
  return on_host;
}

HostShare describe_share(const std::vector<Weights::Unit>& units, const std::set<size_t>& on_host,
                         const PlacementRates& rates) {
  HostShare share{.rates = rates};
  for (size_t i = 0; i < units.size(); ++i) {
    const bool here = on_host.contains(i);
    (units[i].experts ? share.all_expert_layers : share.all_linears) += 1;
    if (!here) continue;
    (units[i].experts ? share.expert_layers : share.linears) += 1;
    share.bytes += static_cast<int64_t>(units[i].bytes);
    share.bytes_of_a_row += static_cast<int64_t>(units[i].bytes_of_a_row);
    share.penalty_us += host_penalty_us(units[i], rates);
  }
  return share;
}

std::string HostShare::to_string() const {
  std::string what;
  if (expert_layers > 0) what = fmt::format("experts of {} of {} layers", expert_layers, all_expert_layers);
  if (linears > 0) what += fmt::format("{}{} of {} other matrices", what.empty() ? "" : " and ", linears, all_linears);
  return fmt::format(
      "{} ({}) stay in host memory, and the CPU computes them: a token reads {} of them, {:+.1f} ms (CPU {:.0f} GB/s, "
      "GPU {:.0f} GB/s, link {:.0f} GB/s)",
      what, human_bytes(bytes), human_bytes(bytes_of_a_row), penalty_us * 1e-3, rates.host_gbs, rates.device_gbs,
      rates.link_gbs);
}

}  // namespace millrace
