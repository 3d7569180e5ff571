// The flat kernel for quantized weights: which shape of work for which problem.
#include "kernels/linear/cuda/packed_mma.cuh"

#include <algorithm>

namespace millrace {

#define MILLRACE_PACKED_FORMATS(X) \
  X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS)

#define MILLRACE_DECLARE(F) \
  extern template cudaError_t launch_packed<DType::F>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

int groups(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : 4; }

// Every block reads the x of its columns: many tokens want many row tiles per block. Blocks along K then fill the device.
PackedShape choose_shape(const CudaLinearProblem& p, const CudaLimits& limits) {
  PackedShape shape{kPackedWarps, 1};
  for (int64_t m = 1; m < std::min<int64_t>(p.m, 8); m *= 2) shape.warps_k /= 2;
  const int64_t units = ceil_div(p.k, 256), tiles = ceil_div(p.n, 16) * ceil_div(p.m, 8 * groups(p.m));
  while (shape.warps_k > 1 && units / shape.warps_k < 2) shape.warps_k /= 2;
  // Enough tiles for every multiprocessor: fewer warps per tile mean fewer partial sums.
  while (shape.warps_k > 1 && tiles * shape.warps_k / 2 >= 3 * 16 * limits.sms) shape.warps_k /= 2;
  const auto blocks = [&] { return ceil_div(tiles * shape.warps_k, kPackedWarps) * shape.splits; };
  if (limits.capability >= 90) {
    while (shape.splits < 8 && blocks() <= limits.sms && units / (2 * shape.splits * shape.warps_k) >= 1) {
      shape.splits *= 2;
    }
  }
  return shape;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  if (p.x != DType::BF16 || limits.capability < 80 || p.k % 32 != 0 || ceil_div(p.m, 32) > 65535) return false;
  switch (p.format) {
#define MILLRACE_CASE(F) case DType::F:
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    return true;
    default: return false;
  }
}

// Decoding and scaling take instructions: about this many per element and token group, and 128 are done per clock.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const PackedShape shape = choose_shape(p, limits);
  const int64_t passes = ceil_div(p.m, 8 * groups(p.m));
  const int64_t blocks = ceil_div(ceil_div(p.n, 16) * shape.warps_k, kPackedWarps) * shape.splits * passes;
  const double elements = static_cast<double>(p.n) * static_cast<double>(p.k) * static_cast<double>(passes);
  const double instructions = elements * (2.0 + 0.7 * groups(p.m));
  const double issue_us = instructions / (128.0 * 1700.0 * 0.7 * limits.sms);
  return std::max(stream_us(p, limits, blocks, 2, 2.6), 2.6 + issue_us);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  PackedParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = static_cast<const __nv_bfloat16*>(a.x);
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.shape = choose_shape(p, limits);
  params.units_split = static_cast<int>(ceil_div(params.units, params.shape.splits));
  params.out = linear_output(p, a);
  LaunchShape shape;
  const int64_t tiles = kPackedWarps / params.shape.warps_k;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(ceil_div(p.n, kUnitRows), tiles) * params.shape.splits),
                    static_cast<unsigned>(ceil_div(p.m, 8 * groups(p.m))));
  shape.threads = kPackedThreads;
  shape.cluster = params.shape.splits;
  switch (p.format) {
#define MILLRACE_CASE(F) \
  case DType::F: return launch_packed<DType::F>(params, shape, step, groups(p.m));
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

const CudaLinearKernel& packed_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-mma", "flat", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
