// The kernel for one token and quantized weights: when it runs, and what it costs.
#include <algorithm>

#include "kernels/linear/cuda/packed_formats.h"
#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_INSTANCES(extern, F)
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

// What a block needs of shared memory; a lot, where it cannot run.
template <bool kHalf>
int shared_bytes(const CudaLinearProblem& p, const CudaLimits& limits) {
  int bytes = 1 << 30;
  with_packed_format(p.format, [&](auto format) {
    if constexpr (!kHalf || kGemvHalves<format.value>) {
      bytes =
          gemv_shared_bytes<format.value, kHalf>(static_cast<int>(ceil_div(p.k, kUnitColumns)), most_tiles(p, limits));
    }
    return cudaSuccess;
  });
  return bytes;
}

template <bool kHalf>
bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m == 1 && p.k <= 65536 &&
         shared_bytes<kHalf>(p, limits) <= GemvShare<kHalf>::kMost;
}

template <bool kHalf>
bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run<kHalf>(p, limits) && p.k <= kGemvMaxNormed;
}

// The multiprocessors with the most tiles decide, though those can draw somewhat more than their share.
template <bool kHalf>
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t tiles = tiles_of(p), even = round_up(tiles, limits.sms);
  const double uneven = static_cast<double>(even) / static_cast<double>(tiles);
  const double ends = kHalf ? 2.1 : 2.0;  // only a measurement can tell where half is better
  return stream_us(p, limits, blocks_of(p, limits), 1, ends) * std::clamp(0.5 + 0.5 * uneven, 1.0, 1.5);
}

template <bool kHalf>
cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr && !takes_norm<kHalf>(p, limits)) return cudaErrorInvalidValue;
  PackedGemvParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = a.x;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.shares = TileShares::of(tiles_of(p), blocks_of(p, limits));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks_of(p, limits)));
  shape.threads = kGemvThreads;
  shape.most_shared = true;
  return with_packed_format(p.format, [&](auto format) {
    return launch_gemv_share<format.value>(kHalf, params, shape, step, most_tiles(p, limits));
  });
}

}  // namespace

const CudaLinearKernel& packed_gemv_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-gemv",      "gemv",     can_run<false>,
                                            estimate_us<false>, run<false>, takes_norm<false>};
  return kKernel;
}

const CudaLinearKernel& packed_gemv_half_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-gemv-half", "gemv",    can_run<true>,
                                            estimate_us<true>,  run<true>, takes_norm<true>};
  return kKernel;
}

}  // namespace millrace
