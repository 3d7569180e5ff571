// The likeliest token of each row of logits, found where the logits are: greedy decoding copies four bytes a row.
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct ArgmaxOp {
  static constexpr std::string_view kName = "argmax";
  struct Problem {
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix logits;              // [rows, cols]
    int32_t* ids = nullptr;     // [rows]; ties go to the lowest, NaN counts as -infinity, -1: nothing is above that
    int32_t* chosen = nullptr;  // the same once more, for the next step; may be null
  };

  static KernelList<ArgmaxOp> cpu();  // best first where estimates tie
  static KernelList<ArgmaxOp> cuda();
  static const Kernel<ArgmaxOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const ArgmaxOp::Problem& problem);

}  // namespace millrace
