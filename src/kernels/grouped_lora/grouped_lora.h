// Low-rank adapters of grouped linear layers, the experts of mixtures (kernels/grouped_linear, kernels/lora).
//
// A pair is a row and one of its experts. Without `sum` each pair has a row of y: y[p] += B A x[row], with the matrices
// of the pair's expert and of the row's own adapter. With `sum` the pairs of a row are added up: y[row] += sum of
// w[p] B A x[p], in the order of the row's choices. A result does not depend on the other rows.
#pragma once

#include <string>

#include "kernels/grouped_linear/routing.h"
#include "kernels/lora/lora.h"

namespace millrace {

struct GroupedLoraOp {
  static constexpr std::string_view kName = "grouped_lora";
  struct Problem {
    DType format = DType::F32;  // of A and B
    int64_t rows = 0, per_row = 1, n = 0, k = 0;
    int64_t parts = 1;
    bool sum = false;
    friend bool operator==(const Problem&, const Problem&) = default;
    int64_t pairs() const { return rows * per_row; }
    int64_t most_rank() const { return parts * LoraWeights::kMostRank; }
  };
  struct Args {
    DType format = DType::F32;
    Matrix x;  // [rows, k]; with `sum` [pairs, k]
    Routing routing;
    int64_t parts = 1;                   // as in the problem
    const int32_t* adapters = nullptr;   // [rows]: index in `table`; -1: none
    const LoraWeights* table = nullptr;  // of this layer, by adapter; in device memory
    bool sum = false;
    Matrix y;  // [pairs, n]; with `sum` [rows, n]

    int64_t x_row(int64_t pair) const { return sum ? pair : pair / routing.per_row; }
    // Host only: the adapter of a pair's row; null: none.
    const LoraWeights* of_pair(int64_t pair) const { return found_in(table, adapters[pair / routing.per_row]); }
  };

  static KernelList<GroupedLoraOp> cpu();  // best first where estimates tie
  static KernelList<GroupedLoraOp> cuda();
  static const Kernel<GroupedLoraOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const GroupedLoraOp::Problem& problem);

}  // namespace millrace
