// Rotary position embedding (RoPE), in place. All layers share the step's cosines and sines (angles.h).
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "kernels/rope/style.h"
#include "tensor/matrix.h"

namespace millrace {

struct RopeOp {
  static constexpr std::string_view kName = "rope";
  struct Problem {
    RopeStyle style = RopeStyle::Halves;
    int64_t rows = 0;
    int heads = 0, head_dim = 0, rotary_dim = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    RopeStyle style = RopeStyle::Halves;
    Matrix x;       // [rows, heads * head_dim]; rotates the first rotary_dim elements of each head
    Matrix angles;  // [rows, rotary_dim]: rotary_dim / 2 cosines, then as many sines
    int heads = 0, head_dim = 0, rotary_dim = 0;
  };

  static KernelList<RopeOp> cpu();  // best first where estimates tie
  static KernelList<RopeOp> cuda();
  static const Kernel<RopeOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const RopeOp::Problem& problem);

}  // namespace millrace
