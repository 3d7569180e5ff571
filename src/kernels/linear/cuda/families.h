// The kernels of each file, and what their estimates share.
#pragma once

#include "base/rounding.h"
#include "kernels/linear/cuda/launch.h"

namespace millrace {

const CudaLinearKernel& gemv_kernel();
const CudaLinearKernel& flat_mma_kernel();
const CudaLinearKernel& gemv_rows_kernel();
std::span<const CudaLinearKernel> wgmma_kernels();  // 128 or 64 rows a block, with all of its memory, with two stages
const CudaLinearKernel& packed_few_kernel();
const CudaLinearKernel& packed_gemv_kernel();
const CudaLinearKernel& packed_mma_kernel();
const CudaLinearKernel& packed_wgmma_kernel();
const CudaLinearKernel& rows_kernel();

// Whether one token has rows for every warp that gemv-rows keeps on the device. It then streams at full width and takes
// the norm in front of it along: kernels that split K or pad tokens stand back.
bool has_rows_for_all(const CudaLinearProblem& problem, const CudaLimits& limits);

inline constexpr int kTileRows = 16;  // of a tensor-core product

constexpr bool is_plain(DType format) { return format == DType::F16 || format == DType::BF16; }

// Clusters and early starts are compiled for Hopper alone; newer devices run the code for Ampere.
constexpr bool has_clusters(const CudaLimits& limits) { return limits.capability == 90; }

// What one block may have of a multiprocessor's shared memory.
constexpr int shared_kilobytes(const CudaLimits& limits) {
  switch (limits.capability) {
    case 80:
    case 87:
      return 163;
    case 90:
    case 100:
    case 103:
      return 227;
    default:
      return 99;
  }
}

// Time to stream weights, x and y, on a grid of `blocks` of which `resident` fit on a multiprocessor at once: the last
// wave may leave part of the device idle, though what remains then has the bandwidth for itself; `ramp_us` is what a
// launch costs before and after the stream runs at full width.
double stream_us(const CudaLinearProblem& problem, const CudaLimits& limits, int64_t blocks, int resident,
                 double ramp_us);

}  // namespace millrace
