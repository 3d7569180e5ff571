// Attention kernels for AMX.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

KernelList<AttentionOp> x86_attention_kernels();

}  // namespace millrace
