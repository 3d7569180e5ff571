// Elementwise ops, and the gather of the rows whose logits are wanted.
#pragma once

#include <span>
#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

enum class Elementwise : uint8_t {
  Add,       // out = a + b
  Multiply,  // out = a * b
  Scale,     // out = a * factor
  Softcap,   // out = factor * tanh(a / factor)
  Gather,    // out[i] = a[ids[i]]
  // out[i] = a[i] * (1 + factor * ln(1 + floor(ids[i] / period))): queries of long contexts, ids are positions
  ScaleByPosition,
  Clamp,               // out = min(max(a, -factor), factor)
  ScaleRowsBySigmoid,  // out[i] = a[i] * sigmoid(b[i]), b: [rows, 1]
  ScaleBySigmoid,      // out = a * sigmoid(b)
};

struct ElementwiseOp {
  static constexpr std::string_view kName = "elementwise";
  struct Problem {
    Elementwise kind = Elementwise::Add;
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Elementwise kind = Elementwise::Add;
    Matrix a, b, out;  // out may alias a
    float factor = 1;
    std::span<const int32_t> ids;
    int32_t period = 1;  // ScaleByPosition: positions with the same factor
  };

  static KernelList<ElementwiseOp> cpu();  // best first where estimates tie
  static KernelList<ElementwiseOp> cuda();
  static const Kernel<ElementwiseOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const ElementwiseOp::Problem& problem);

}  // namespace millrace
