// The streaming kernel for quantized weights: how much of a multiprocessor it takes, and what that costs.
#include <algorithm>

#include "kernels/linear/cuda/packed_formats.h"
#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_INSTANCES(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int kMaxTokens = 8;
// Bytes of shared memory for a block when two are on a multiprocessor, or one.
constexpr int kHalf = 110 * 1024, kWhole = 224 * 1024;

int fixed_bytes(const CudaLinearProblem& p) {
  int bytes = 0;
  with_packed_format(p.format, [&](auto format) {
    const int m = static_cast<int>(p.m), units = static_cast<int>(ceil_div(p.k, kUnitColumns));
    bytes = m == 1 ? stream_fixed_bytes<format.value, 1>(m, units) : stream_fixed_bytes<format.value, 8>(m, units);
    return cudaSuccess;
  });
  return bytes;
}

int slot_bytes(const CudaLinearProblem& p) {
  return kStreamWarps * static_cast<int>(packed_linear_bytes(p.format, kUnitRows, kUnitColumns));
}

// Two blocks take all of a multiprocessor. One block in half of it would leave room for the kernel behind, but a kernel
// that starts early puts two of its blocks where it finds room, and none elsewhere.
int resident(const CudaLinearProblem& p) { return fixed_bytes(p) + 3 * slot_bytes(p) <= kHalf ? 2 : 1; }

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m <= kMaxTokens && p.k <= 65536 &&
         fixed_bytes(p) + 2 * slot_bytes(p) <= kWhole;
}

// A multiprocessor takes its share of the tiles at the rate at which their bytes come, or are decoded.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const double units = static_cast<double>(ceil_div(p.k, kUnitColumns)), m = static_cast<double>(p.m);
  const double blocks = limits.sms * resident(p);
  const double rounds = std::max(1.0, static_cast<double>(ceil_div(p.n, kUnitRows)) / blocks);
  const double streamed_us = slot_bytes(p) / double{kStreamWarps} * limits.sms / (0.97 * limits.bytes_per_us);
  double decoded_us = p.m == 1 ? 0.08 : 0.092;  // measured, for the plainest formats
  if (p.format == DType::Q4_1 || p.format == DType::Q4_K) decoded_us *= 1.15;
  if (p.format == DType::Q5_0 || p.format == DType::Q5_1 || p.format == DType::Q5_K) decoded_us *= 1.4;
  if (p.format == DType::IQ4_NL || p.format == DType::IQ4_XS) decoded_us *= 1.7;
  const double x_us = (0.5 + 1.1 * (m - 1)) * units / 16;
  return 3.6 + x_us + rounds * units * resident(p) * std::max(streamed_us, decoded_us);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  PackedStreamParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = static_cast<const __nv_bfloat16*>(a.x);
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(std::min(ceil_div(p.n, kUnitRows), int64_t{limits.sms} * resident(p))));
  shape.threads = kStreamThreads;
  const int room = resident(p) == 2 ? kHalf : kWhole;
  return with_packed_format(p.format,
                            [&](auto format) { return launch_stream<format.value>(params, shape, step, room); });
}

}  // namespace

const CudaLinearKernel& packed_stream_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-stream", "gemv", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
