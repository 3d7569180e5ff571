// The kernels of one quantized format. Several files instantiate the formats, so that they compile in parallel.
#pragma once

#include "kernels/linear/cuda/quantized/few.cuh"
#include "kernels/linear/cuda/quantized/gemv.cuh"
#include "kernels/linear/cuda/quantized/mma.cuh"
#include "kernels/linear/cuda/quantized/wgmma.cuh"

#define MILLRACE_PACKED_INSTANCES(F) \
  MILLRACE_FEW_INSTANCE(, F)         \
  MILLRACE_GEMV_INSTANCE(, F)        \
  MILLRACE_MMA_INSTANCE(, F)         \
  MILLRACE_WGMMA_INSTANCE(, F)
