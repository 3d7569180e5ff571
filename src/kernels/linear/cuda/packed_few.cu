// The kernel for two to eight tokens and quantized weights: how K is shared, and what it costs.
#include <algorithm>

#include "kernels/linear/cuda/packed_formats.h"
#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_INSTANCES(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int64_t kMostJobs = 32;  // units of tokens that a block shall bring into shared memory: two for each warp

int64_t units_of(const CudaLinearProblem& p) { return ceil_div(p.k, kUnitColumns); }

int splits_of(const CudaLinearProblem& p) {
  int splits = 1;
  while (splits < 8 && 2 * splits <= units_of(p) && p.m * ceil_div(units_of(p), splits) > kMostJobs) splits *= 2;
  return splits;
}

int shared_bytes(const CudaLinearProblem& p) {
  int bytes = 0;
  with_packed_format(p.format, [&](auto format) {
    const int tokens = static_cast<int>(p.m), units = static_cast<int>(ceil_div(units_of(p), splits_of(p)));
    bytes = few_shared_bytes<format.value>(tokens, units, few_kept<format.value>(tokens, units));
    return cudaSuccess;
  });
  return bytes;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m >= 2 && p.m <= kFewTokens && p.k <= 65536 &&
         shared_bytes(p) <= kFewRoom;
}

bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.m * ceil_div(units_of(p), splits_of(p)) <= kFewNormEach * kRingWarps;
}

// As that of packed-gemv; a cluster adds up at the end, and more tokens take longer to come and to multiply.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t tiles = ceil_div(p.n, kUnitRows), even = round_up(tiles, limits.sms);
  const double uneven = static_cast<double>(even) / static_cast<double>(tiles);
  const double ends = 3.0 + (splits_of(p) > 1 ? 1.0 : 0.0) + 0.1 * static_cast<double>(p.m);
  return stream_us(p, limits, std::min<int64_t>(tiles * splits_of(p), limits.sms), 1, ends) *
         std::clamp(0.5 + 0.5 * uneven, 1.0, 1.5);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr && !takes_norm(p, limits)) return cudaErrorInvalidValue;
  PackedFewParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = a.x;
  params.x_stride = a.x_stride;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(units_of(p));
  params.splits = splits_of(p);
  params.out = linear_output(p, a);
  return with_packed_format(p.format, [&](auto format) { return launch_few<format.value>(params, step, limits.sms); });
}

}  // namespace

const CudaLinearKernel& packed_few_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-few", "flat", can_run, estimate_us, run, takes_norm};
  return kKernel;
}

}  // namespace millrace
