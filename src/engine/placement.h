// Chooses the weights that stay in host memory if a device cannot hold all of them, by a model of the time that a
// decode step then takes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/memory_plan.h"
#include "models/weights.h"

namespace millrace {

struct PlacementRates {
  double device_gbs = 0, host_gbs = 0;  // streaming reads of weights
  double link_gbs = 0;                  // copies between the two
  double hand_over_us = 20;             // of a unit on the host, once per step: waiting, and launching two copies
};

// Time that a step of one row takes longer if the unit is on the host.
double host_penalty_us(const Weights::Unit& unit, const PlacementRates& rates);

// Units whose move to the host frees at least so many bytes, or all units that free any: experts first, because a row
// reads few of them; then the units that cost least time for each byte; of equal ones the last, because the last layer
// of a prompt computes few rows.
std::set<size_t> choose_host_units(const std::vector<Weights::Unit>& units, size_t bytes, const PlacementRates& rates);

// The result, for `inspect` and `explain`.
struct HostShare {
  int64_t expert_layers = 0,
          all_expert_layers = 0;  // layers whose experts are on the host, and all layers with experts
  int64_t linears = 0, all_linears = 0;
  int64_t bytes = 0, bytes_of_a_row = 0;  // of the units on the host, and what a step of one row reads of them
  double penalty_us = 0;                  // of a step of one row, against a device that holds everything
  PlacementRates rates;
  MemoryPlan memory;  // of the host

  bool any() const { return bytes > 0; }
  std::string to_string() const;  // "experts of 24 of 48 layers (14.2 GB) are in host memory: ..."
};
HostShare describe_share(const std::vector<Weights::Unit>& units, const std::set<size_t>& on_host,
                         const PlacementRates& rates);

}  // namespace millrace
