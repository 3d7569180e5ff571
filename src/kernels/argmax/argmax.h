// The most likely token of each row of logits, or the next likeliest after some that are known. On a GPU, greedy
// decoding then copies four bytes per row to the host.
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct ArgmaxOp {
  static constexpr std::string_view kName = "argmax";
  static constexpr int kMostSkipped = 3;
  struct Problem {
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix logits;              // [rows, cols]
    int32_t* ids = nullptr;     // [rows]; ties: lowest id; NaN counts as -infinity; -1 if no logit is above -infinity
    int32_t* chosen = nullptr;  // null or a second copy of ids, read by the next step
    // [skipped][rows]: tokens of each row that do not count, because earlier calls found them; -1: none
    const int32_t* known = nullptr;
    int skipped = 0;  // at most kMostSkipped
  };

  static KernelList<ArgmaxOp> cpu();  // best first where estimates tie
  static KernelList<ArgmaxOp> cuda();
  static const Kernel<ArgmaxOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const ArgmaxOp::Problem& problem);

}  // namespace millrace
