// Chooses the weights that stay in host memory if a device cannot hold all of them, by a model of the time that a
// decode step then takes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory_plan.h"
#include "hardware/link_rate.h"
#include "models/weights.h"

namespace millrace {

struct PlacementRates {
  double device_gbs = 0, host_gbs = 0;  // streaming reads of weights
  double expert_gbs = 0;                // at which the CPU reads a row's experts
  double call_us = 0;                   // added to reading the bytes of a row's experts
  Link link;                            // between device and host
};

// Time that a step of one row takes longer if so many of the unit's experts (1: a linear layer) are on the host. The
// device computes its own experts meanwhile.
double host_penalty_us(const Weights::Unit& unit, int64_t groups, const PlacementRates& rates);

// Units, and how many experts of each, whose move to the host frees at least so many bytes; or all units that free any.
// Experts go first, because a row reads few of them, then the units that cost least time for each byte. Experts leave
// layer by layer from the last one, because the last layer of a prompt computes few rows; or some of every layer, where
// the time that the device saves by computing beside the CPU exceeds that of more hand-overs. `split` forces one.
using HostGroups = std::map<size_t, int64_t>;
HostGroups choose_host_units(const std::vector<Weights::Unit>& units, size_t bytes, const PlacementRates& rates,
                             std::optional<bool> split = std::nullopt);

// The result, for `inspect` and `explain`.
struct HostShare {
  int64_t expert_layers = 0,
          all_expert_layers = 0;         // layers whose experts are on the host, and all layers with experts
  int64_t experts = 0, all_experts = 0;  // of all layers
  int64_t linears = 0, all_linears = 0;
  int64_t bytes = 0, bytes_of_a_row = 0;  // of the units on the host, and what a step of one row reads of them
  double penalty_us = 0;                  // of a step of one row, against a device that holds everything
  int64_t stream_rows = 0;                // steps of so many rows copy weights to the device; 0: none do
  PlacementRates rates;
  MemoryPlan memory;  // of the host

  bool any() const { return bytes > 0; }
  std::string to_string() const;  // "experts of 24 of 48 layers (14.2 GB) are in host memory: ..."
};
HostShare describe_share(const std::vector<Weights::Unit>& units, const HostGroups& on_host,
                         const PlacementRates& rates);

}  // namespace millrace
