// A number that tells models apart: fine-tunes of one architecture have the same names and shapes.
#pragma once

#include <cstdint>

#include "formats/weight_source.h"

namespace millrace {

// Of all tensors' names, formats and shapes, and of some bytes of some tensors.
uint64_t fingerprint(const WeightSource& source);

}  // namespace millrace
