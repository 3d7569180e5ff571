// The routing of a grouped linear layer in which every head has its own matrix: row r of a batch is the rows
// r * heads .. r * heads + heads - 1 of the layer, and each chooses the matrix of its head.
#pragma once

#include <string>

#include "kernels/grouped_linear/routing.h"
#include "kernels/kernel.h"

namespace millrace {

struct HeadRoutingOp {
  static constexpr std::string_view kName = "head_routing";
  struct Problem {
    int64_t rows = 0, heads = 0;  // rows of the batch
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Routing routing;  // written, except `weights`; rows: those of the batch times the heads; groups: heads
  };

  static KernelList<HeadRoutingOp> cpu();
  static KernelList<HeadRoutingOp> cuda();
  static const Kernel<HeadRoutingOp>* reference();
};
std::string to_string(const HeadRoutingOp::Problem& problem);

}  // namespace millrace
