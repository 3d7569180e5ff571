#include "kernels/attention/cuda_attention.h"

#include "kernels/cuda_lists.h"

namespace millrace {

KernelList<AttentionOp> cuda_attention_kernels() { return {cuda_simple_attention()}; }

}  // namespace millrace
