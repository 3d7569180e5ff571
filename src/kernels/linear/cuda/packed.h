// The layouts that linear/cuda packs weights into, and the kernels that read them.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

std::vector<const LinearLayout*> cuda_packed_layouts();
KernelList<LinearOp> cuda_packed_kernels();

// The type of activations that a layout is packed for; F32 if the layout is not one of these.
DType cuda_packed_type(std::string_view layout);
// Dequantizes packed weights to bf16 rows with the stride of a plain format, for GEMMs that take no quantized weights.
void cuda_unpack(const LinearWeights& weights, void* to, void* queue);

}  // namespace millrace
