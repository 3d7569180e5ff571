// Host side of the kernel for one token and quantized weights: when it can run, and its cost.
#include <algorithm>

#include "kernels/linear/cuda/quantized/formats.h"
#include "kernels/linear/cuda/quantized/gemv.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_GEMV_INSTANCE(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

int64_t tiles_of(const CudaLinearProblem& p) { return ceil_div(p.n, kUnitRows); }
int64_t blocks_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  return std::min<int64_t>(tiles_of(p), limits.sms);
}

int most_tiles(const CudaLinearProblem& p, const CudaLimits& limits) {  // of a block
  return static_cast<int>(ceil_div(tiles_of(p), blocks_of(p, limits)));
}

bool fits(const CudaLinearProblem& p, const CudaLimits& limits) {
  bool fits = false;
  with_packed_format(p.format, [&](auto format) {
    const int units = static_cast<int>(ceil_div(p.k, kUnitColumns)), tiles = most_tiles(p, limits);
    fits = gemv_halves<format.value>(units, tiles) ||
           gemv_shared_bytes<format.value, false>(units, tiles) <= GemvShare<false>::kMost;
    return cudaSuccess;
  });
  return fits;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m == 1 && p.k <= 65536 && fits(p, limits);
}

bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.k <= kGemvMaxNormed;
}

// Both layers must consist of whole parts of kNormPart columns.
bool splits_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.k % kNormPart == 0 && p.n % kNormPart == 0;
}

// The multiprocessors with the most tiles determine the time. They can exceed their fair share of the bandwidth
// slightly.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t tiles = tiles_of(p), even = round_up(tiles, limits.sms);
  const double uneven = static_cast<double>(even) / static_cast<double>(tiles);
  return stream_us(p, limits, blocks_of(p, limits), 1, 2.0) * std::clamp(0.5 + 0.5 * uneven, 1.0, 1.5);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr && !takes_norm(p, limits)) return cudaErrorInvalidValue;
  if ((a.squares != nullptr || a.ahead.weights != nullptr) && !splits_norm(p, limits)) return cudaErrorInvalidValue;
  if (a.ahead.weights != nullptr && (!p.accumulate || p.gate_up)) return cudaErrorInvalidValue;
  PackedGemvParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = a.x;
  params.norm = a.norm;
  params.shared = {a.ahead, a.squares, a.epsilon, static_cast<int>(p.k)};
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.shares = TileShares::of(tiles_of(p), blocks_of(p, limits));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks_of(p, limits)));
  shape.threads = kGemvThreads;
  shape.most_shared = true;
  return with_packed_format(
      p.format, [&](auto format) { return launch_gemv<format.value>(params, shape, step, most_tiles(p, limits)); });
}

}  // namespace

const CudaLinearKernel& packed_gemv_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-gemv", can_run, estimate_us, run, takes_norm, splits_norm};
  return kKernel;
}

}  // namespace millrace
