// Activation functions of feed-forward layers, optionally multiplied with a second input.
#pragma once

#include <string>

#include "kernels/activation/kind.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct ActivationOp {
  static constexpr std::string_view kName = "activation";
  struct Problem {
    Activation kind = Activation::Silu;
    bool gated = false;
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Activation kind = Activation::Silu;
    Matrix x;                           // [rows, cols]
    const Matrix* gate_with = nullptr;  // out = f(x) * gate_with; null: out = f(x)
    Matrix out;                         // may alias x
    SwigluClamp clamp;                  // of ClampedSwiglu
  };

  static KernelList<ActivationOp> cpu();  // best first where estimates tie
  static KernelList<ActivationOp> cuda();
  static const Kernel<ActivationOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const ActivationOp::Problem& problem);

}  // namespace millrace
