// Peak rates of a GPU: guessed from its attributes, or measured in about a second.
#pragma once

#include <cuda_runtime_api.h>

#include "hardware/hardware.h"

namespace millrace {

Ceilings guess_gpu_ceilings(const Hardware& hardware);
Ceilings measure_gpu_ceilings(const Hardware& hardware, cudaStream_t stream);

}  // namespace millrace
