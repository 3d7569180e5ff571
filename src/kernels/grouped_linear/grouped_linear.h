// y[i] = W[group of i] x[i / per_row]: a linear layer whose matrix each row chooses, as the experts of a mixture do. One
// row of y per (row of x, group) pair.
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct GroupedLinearOp {
  static constexpr std::string_view kName = "grouped_linear";
  struct Problem {
    DType format = DType::F32;
    int64_t groups = 0, n = 0, k = 0;
    int64_t pairs = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix x;                         // [rows, k]
    WeightView weights;               // [groups * n, k], as the file holds them: n rows for each group
    const int32_t* groups = nullptr;  // [rows * per_row], in the device's memory; negative: the row of y becomes zeros
    int64_t per_row = 1;              // groups that each row of x is multiplied with
    Matrix y;                         // [rows * per_row, n]
  };

  static KernelList<GroupedLinearOp> cpu();
  static KernelList<GroupedLinearOp> cuda() { return {}; }
  static const Kernel<GroupedLinearOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const GroupedLinearOp::Problem& problem);

}  // namespace millrace
