// Experts that stay in the mapped file because memory is too small for them: the decision, and the speed to expect.
#pragma once

#include <string>

#include "models/weights.h"

namespace millrace {

// `total`: the memory plan with all experts in memory; `experts`: their part of it. Experts stay in the file only if
// that makes the rest fit.
ExpertsIn place_experts(int64_t total, int64_t experts, int64_t available);

struct MappedExperts {
  int64_t bytes = 0, bytes_of_a_row = 0;  // in the file, and of them what a token reads
  int64_t room = 0;                       // memory left for the file's pages
  double storage_gbs = 0;                 // 0: unknown

  bool any() const { return bytes > 0; }
  // The part of a token's experts that storage delivers: routing spreads evenly, and the system keeps what fits.
  double share_from_storage() const;
  double storage_us() const;      // time of a token for them; 0: none, or the rate is unknown
  std::string to_string() const;  // "the experts (14.2 GB) stay in the file, ..."
};

}  // namespace millrace
