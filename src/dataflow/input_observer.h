// Receives the inputs of linear layers while steps run on the CPU. Only measurements set one: norms are then not fused
// into linear layers, so that every input exists as a matrix.
#pragma once

#include "dataflow/linear_layer.h"

namespace millrace {

class InputObserver {
 public:
  virtual ~InputObserver() = default;
  virtual void see(const Linear& layer, Matrix x) = 0;  // x: [rows, k]
  // x: [rows, k], or [pairs, k] if the layer has `sum`.
  virtual void see(const Grouped& layer, Matrix x, const Routing& routing) = 0;
};

}  // namespace millrace
