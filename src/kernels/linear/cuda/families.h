// The kernel families of plain/ and quantized/, and the parts of their estimates that they share.
#pragma once

#include "base/rounding.h"
#include "kernels/linear/cuda/launch.h"

namespace millrace {

const CudaLinearKernel& gemv_kernel();
const CudaLinearKernel& flat_mma_kernel();
const CudaLinearKernel& gemv_rows_kernel();
std::span<const CudaLinearKernel>
wgmma_kernels();  // 128 or 64 rows per block, with all of the shared memory, with two stages
const CudaLinearKernel& packed_few_kernel();
const CudaLinearKernel& packed_gemv_kernel();
const CudaLinearKernel& packed_mma_kernel();
const CudaLinearKernel& packed_wgmma_kernel();
const CudaLinearKernel& rows_kernel();

// Whether one token gives every resident warp of gemv-rows a row. gemv-rows then streams at full bandwidth and fuses
// the norm in front, so kernels that split K or pad tokens do not compete.
bool has_rows_for_all(const CudaLinearProblem& problem, const CudaLimits& limits);

inline constexpr int kTileRows = 16;  // of a tensor-core tile

constexpr bool is_plain(DType format) { return format == DType::F16 || format == DType::BF16; }

// Clusters and programmatic dependent launch are compiled for Hopper only; newer devices run the code for Ampere.
constexpr bool has_clusters(const CudaLimits& limits) { return limits.capability == 90; }

// Maximum shared memory of one block.
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

// Time to stream weights, x and y with a grid of `blocks`, of which `resident` fit on a multiprocessor. The last wave
// may leave part of the device idle, but its blocks then share the whole bandwidth. `ramp_us` is the cost of a launch
// before and after full bandwidth.
double stream_us(const CudaLinearProblem& problem, const CudaLimits& limits, int64_t blocks, int resident,
                 double ramp_us);

}  // namespace millrace
