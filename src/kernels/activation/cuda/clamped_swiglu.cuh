// Activation::ClampedSwiglu of one element, for kernels that gate by themselves.
#pragma once

#include "kernels/activation/kind.h"

namespace millrace {

__device__ inline float clamped_swiglu(float gate, float up, const SwigluClamp& clamp) {
  gate = fminf(gate, clamp.limit);
  up = fminf(fmaxf(up, -clamp.limit), clamp.limit);
  return (up + 1) * gate / (1 + __expf(-clamp.slope * gate));
}

}  // namespace millrace
