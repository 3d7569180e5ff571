// Attention kernels for extensions of newer ARM cores.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

KernelList<AttentionOp> arm_attention_kernels();

}  // namespace millrace
