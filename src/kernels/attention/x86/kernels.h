// Attention kernels for the matrix instructions of newer Xeons.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

KernelList<AttentionOp> x86_attention_kernels();

}  // namespace millrace
