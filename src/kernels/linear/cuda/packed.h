// Weights in a GPU's memory as the kernels of linear/cuda/ want them, and those kernels.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

std::vector<const LinearLayout*> cuda_packed_layouts();
KernelList<LinearOp> cuda_packed_kernels();

// The type of activations that a layout was packed for; F32: the layout is not of this family.
DType cuda_packed_type(std::string_view layout);
// Packed quantized weights as plain bf16 rows, as far apart as those of a plain format: for matrix products that take
// no others.
void cuda_unpack(const LinearWeights& weights, void* to, void* queue);

}  // namespace millrace
