// The rows8 layout (packed.h): quantized weights, eight rows interleaved.
#pragma once

#include "kernels/linear/linear.h"

namespace millrace {

const LinearLayout& rows8_layout();

}  // namespace millrace
