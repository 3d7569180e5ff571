#include "engine/placement.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

using Units = std::vector<Weights::Unit>;

size_t bytes_of(const Weights::Unit& unit, int64_t groups) {
  return unit.bytes / static_cast<size_t>(unit.groups) * static_cast<size_t>(groups);
}

size_t freed_by(const Units& units, const HostGroups& on_host) {
  size_t sum = 0;
  for (const auto& [i, groups] : on_host)
    sum += groups == units[i].groups ? units[i].bytes : bytes_of(units[i], groups);
  return sum;
}

double penalty_us(const Units& units, const HostGroups& on_host, const PlacementRates& rates) {
  double sum = 0;
  for (const auto& [i, groups] : on_host) sum += host_penalty_us(units[i], groups, rates);
  return sum;
}

// Whole units in the order of their cost for each byte.
HostGroups by_units(const Units& units, size_t bytes, const PlacementRates& rates) {
  std::vector<size_t> order;
  for (size_t i = units.size(); i-- > 0;) {
    if (units[i].bytes > 0) order.push_back(i);
  }
  const auto cost = [&](size_t i) {
    return host_penalty_us(units[i], units[i].groups, rates) / static_cast<double>(units[i].bytes);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return units[a].experts != units[b].experts ? units[a].experts : cost(a) < cost(b);
  });
  HostGroups on_host;
  std::vector<size_t> chosen;
  size_t freed = 0;
  for (const size_t i : order) {
    if (freed >= bytes) break;
    chosen.push_back(i);
    on_host[i] = units[i].groups;
    freed += units[i].bytes;
  }
  // The last unit may free far more than was missing, so that smaller ones before it can stay on the device.
  for (const size_t i : chosen) {
    if (freed < bytes || freed - bytes < units[i].bytes) continue;
    freed -= units[i].bytes;
    on_host.erase(i);
  }
  // So can some experts of the last layer that was chosen.
  for (size_t at = chosen.size(); at-- > 0 && freed > bytes;) {
    const size_t i = chosen[at];
    const size_t each = bytes_of(units[i], 1);
    if (!units[i].experts || !on_host.contains(i) || each == 0) continue;
    const auto stay = std::min<int64_t>(static_cast<int64_t>((freed - bytes) / each), units[i].groups - 1);
    on_host[i] -= stay;
    break;
  }
  return on_host;
}

// The same part of the experts of every layer; empty if that is not enough.
HostGroups by_experts(const Units& units, size_t bytes) {
  size_t all = 0;
  for (const auto& unit : units) all += unit.experts ? unit.bytes : 0;
  if (all < bytes || bytes == 0) return {};
  const double part = static_cast<double>(bytes) / static_cast<double>(all);
  HostGroups on_host;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto groups = static_cast<int64_t>(part * static_cast<double>(units[i].groups));
    if (units[i].experts && units[i].bytes > 0 && groups > 0) on_host[i] = groups;
  }
  for (size_t i = units.size(); i-- > 0;) {  // what rounding down left
    if (freed_by(units, on_host) >= bytes) break;
    if (units[i].experts && units[i].bytes > 0 && on_host[i] < units[i].groups) ++on_host[i];
  }
  return freed_by(units, on_host) >= bytes ? on_host : HostGroups();
}

}  // namespace

double host_penalty_us(const Weights::Unit& unit, int64_t groups, const PlacementRates& rates) {
  const double part = static_cast<double>(groups) / static_cast<double>(unit.groups);
  const double device_us = unit.bytes_of_a_row / rates.device_gbs * 1e-3;
  const double gbs = unit.experts && rates.expert_gbs > 0 ? rates.expert_gbs : rates.host_gbs;
  const double host_us =
      rates.link.hand_over_us + (unit.experts ? rates.call_us : 0) + part * unit.bytes_of_a_row / gbs * 1e-3;
  return std::max(host_us, (1 - part) * device_us) - device_us;
}

HostGroups choose_host_units(const Units& units, size_t bytes, const PlacementRates& rates, std::optional<bool> split) {
  HostGroups whole = by_units(units, bytes, rates);
  if (split == false) return whole;
  HostGroups parts = by_experts(units, bytes);
  if (parts.empty()) return whole;
  return split == true || penalty_us(units, parts, rates) < penalty_us(units, whole, rates) ? parts : whole;
}

HostShare describe_share(const Units& units, const HostGroups& on_host, const PlacementRates& rates) {
  HostShare share{.penalty_us = penalty_us(units, on_host, rates), .rates = rates};
  for (size_t i = 0; i < units.size(); ++i) {
    const auto found = on_host.find(i);
    const int64_t groups = found == on_host.end() ? 0 : found->second;
    (units[i].experts ? share.all_expert_layers : share.all_linears) += 1;
    if (units[i].experts) {
      share.experts += groups;
      share.all_experts += units[i].groups;
    }
    if (groups == 0) continue;
    (units[i].experts ? share.expert_layers : share.linears) += 1;
    share.bytes += static_cast<int64_t>(bytes_of(units[i], groups));
    share.bytes_of_a_row += static_cast<int64_t>(units[i].bytes_of_a_row * static_cast<double>(groups) /
                                                 static_cast<double>(units[i].groups));
  }
  return share;
}

std::string HostShare::to_string() const {
  std::string what;
  if (expert_layers > 0)
    what = fmt::format("{} of {} experts, in {} of {} layers", experts, all_experts, expert_layers, all_expert_layers);
  if (linears > 0) what += fmt::format("{}{} of {} other matrices", what.empty() ? "" : " and ", linears, all_linears);
  std::string text = fmt::format(
      "{} ({}) stay in host memory, and the CPU computes them: a token reads {} of them, {:+.1f} ms (CPU {:.0f} GB/s, "
      "GPU {:.0f} GB/s, link {:.0f} GB/s, hand-over {:.0f} us)",
      what, human_bytes(bytes), human_bytes(bytes_of_a_row), penalty_us * 1e-3,
      expert_layers > 0 && rates.expert_gbs > 0 ? rates.expert_gbs : rates.host_gbs, rates.device_gbs, rates.link.gbs,
      rates.link.hand_over_us + (expert_layers > 0 ? rates.call_us : 0));
  if (stream_rows > 0) text += fmt::format("; steps of {} rows and more copy them to the GPU", stream_rows);
  return text;
}

}  // namespace millrace
