// The activation functions.
#pragma once

#include <cstdint>

namespace millrace {

enum class Activation : uint8_t {
  Silu,
  GeluTanh,
  GeluErf,
  Relu,
  ReluSquared,
  // Gated only, see SwigluClamp: g = min(gate, limit), u = clamp(up, -limit, limit), result (u + 1) g sigmoid(slope g).
  ClampedSwiglu,
};

struct SwigluClamp {
  float limit = 7, slope = 1.702f;  // those of gpt-oss
};

}  // namespace millrace
