#include <algorithm>
#include <vector>

#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/quantized/flat.h"

namespace millrace {

double stream_us(const CudaLinearProblem& p, const CudaLimits& limits, int64_t blocks, int resident, double ramp_us) {
  const double weights = static_cast<double>(packed_linear_bytes(p.format, p.n, p.k));
  const double y_size = p.y == DType::F32 ? 4 : 2;
  const double outputs = static_cast<double>(p.gate_up ? p.n / 2 : p.n) * y_size * (p.accumulate ? 2 : 1);
  const double moved = weights + static_cast<double>(p.m) * (2.0 * static_cast<double>(p.k) + outputs);
  // A grid smaller than the device reaches only part of the bandwidth; about 60 % of the multiprocessors reach all of
  // it.
  const double busy = std::min(1.0, static_cast<double>(blocks) / (0.6 * limits.sms));
  const double waves = std::max(1.0, static_cast<double>(blocks) / (static_cast<double>(resident) * limits.sms));
  const double tail_us = 0.15 * waves;
  return ramp_us + tail_us + moved / (limits.bytes_per_us * std::max(busy, 0.02));
}

std::span<const CudaLinearKernel> cuda_linear_kernels() {
  static const std::vector<CudaLinearKernel> kKernels = [] {
    std::vector<CudaLinearKernel> list{gemv_rows_kernel(), gemv_kernel(), flat_mma_kernel()};
    for (const CudaLinearKernel& kernel : wgmma_kernels()) list.push_back(kernel);
    list.insert(list.end(), {packed_gemv_kernel(), packed_few_kernel(), packed_flat_kernel(), packed_wgmma_kernel(),
                             packed_mma_kernel(), rows_kernel()});
    return list;
  }();
  return kKernels;
}

}  // namespace millrace
