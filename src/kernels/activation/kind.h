// The activation functions.
#pragma once

#include <cstdint>

namespace millrace {

enum class Activation : uint8_t { Silu, GeluTanh, GeluErf, Relu, ReluSquared };

}  // namespace millrace
