// Host side of the kernel for two to four tokens and quantized weights: splits of K, estimate, launch.
#include <algorithm>

#include "kernels/linear/cuda/quantized/few.cuh"
#include "kernels/linear/cuda/quantized/flat.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_FEW_INSTANCE(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

int64_t units_of(const CudaLinearProblem& p) { return ceil_div(p.k, kUnitColumns); }

FewWay way_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  FewWay way{};
  with_packed_format(p.format, [&](auto format) {
    way = few_way<format.value>(static_cast<int>(p.m), static_cast<int>(units_of(p)),
                                static_cast<int>(ceil_div(p.n, kUnitRows)), limits.sms, p.accumulate);
    return cudaSuccess;
  });
  return way;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m >= 2 && p.m < kFlatLeastTokens && p.k <= 65536 &&
         way_of(p, limits).splits > 0;
}

// Both layers must consist of whole parts of kNormPart columns.
bool splits_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.k % kNormPart == 0 && p.n % kNormPart == 0;
}

// As packed-gemv; a cluster also adds up its sums, and more tokens take longer to stage and to multiply.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int splits = way_of(p, limits).splits;
  const int64_t tiles = ceil_div(p.n, kUnitRows), even = round_up(tiles, limits.sms);
  const double uneven = static_cast<double>(even) / static_cast<double>(tiles);
  const double ends = 3.0 + (splits > 1 ? 1.0 : 0.0) + 0.1 * static_cast<double>(p.m);
  return stream_us(p, limits, std::min<int64_t>(tiles * splits, limits.sms), 1, ends) *
         std::clamp(0.5 + 0.5 * uneven, 1.0, 1.5);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr) return cudaErrorInvalidValue;
  if ((a.squares != nullptr || a.ahead.weights != nullptr) && !splits_norm(p, limits)) return cudaErrorInvalidValue;
  if (a.ahead.weights != nullptr && (!p.accumulate || p.gate_up)) return cudaErrorInvalidValue;
  const FewWay way = way_of(p, limits);
  PackedFewParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = a.x;
  params.x_stride = a.x_stride;
  params.shared = {a.ahead, a.squares, a.epsilon, static_cast<int>(p.k)};
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(units_of(p));
  params.splits = way.splits;
  params.out = linear_output(p, a);
  return with_packed_format(
      p.format, [&](auto format) { return launch_few<format.value>(params, step, limits.sms, way.tokens); });
}

}  // namespace

const CudaLinearKernel& packed_few_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-few", can_run, estimate_us, run, nullptr, splits_norm};
  return kKernel;
}

}  // namespace millrace
