// The CUDA kernels of the selective scan.
#pragma once

#include <cstdint>

#include "kernels/ssm_scan/ssm_scan.h"

namespace millrace {

// Row after row, with the state in registers.
const Kernel<SsmScanOp>& ssm_scan_by_rows();
// The same for the slices of so many rows; the other ones are left out.
void run_ssm_scan_by_rows(const SsmScanOp::Args& args, const Executor& executor, int32_t least_rows, int32_t most_rows);
// Prompts in chunks, as matrix products; single rows in one pass over the state.
const Kernel<SsmScanOp>& ssm_scan_by_chunks();

}  // namespace millrace
