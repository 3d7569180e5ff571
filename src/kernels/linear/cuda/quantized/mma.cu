// Host side of the flat kernel for quantized weights: the shape of work for each problem. Shapes differ in the number
// of warps of a block that share a tile of rows: more suit few rows, fewer suit many tokens.
#include "kernels/linear/cuda/quantized/formats.h"
#include "kernels/linear/cuda/quantized/mma.cuh"

#include <algorithm>
#include <cmath>

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_MMA_INSTANCE(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

int groups(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : 4; }

// Bytes of x and its sums per unit of K.
int staged_unit_bytes(const CudaLinearProblem& p) {
  const int tokens = static_cast<int>(std::min<int64_t>(p.m, 8 * groups(p.m)));
  return tokens * kUnitColumns * 2 + 8 * groups(p.m) * 64 * (p.format == DType::Q6_K ? 2 : 1);
}

struct Choice {
  PackedShape shape;
  double us;
};

// Weights stream at the bandwidth of the device or at the rate of decoding. Each block reads the x of its columns
// through the L2 cache. Clusters and partial sums add a little at the end.
Choice cost(const CudaLinearProblem& p, const CudaLimits& limits, int warps_k, int splits) {
  const int units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  const int resident = packed_blocks_resident(p.format, groups(p.m));
  Choice choice{{warps_k, splits, 0, 0}, 0};
  choice.shape.units_split = static_cast<int>(ceil_div(units, splits));
  const int share_bytes = (shared_kilobytes(limits) - 27) * 1024 / resident;
  const int room = std::max(1, share_bytes / staged_unit_bytes(p) / warps_k) * warps_k;
  choice.shape.units_chunk = std::min(room, static_cast<int>(round_up(choice.shape.units_split, warps_k)));

  const int64_t passes = ceil_div(p.m, 8 * groups(p.m));
  const int64_t blocks = ceil_div(ceil_div(p.n, kUnitRows), kPackedWarps / warps_k) * splits * passes;
  const double elements = static_cast<double>(p.n) * static_cast<double>(p.k) * static_cast<double>(passes);
  const double instructions = elements * (1.6 + 0.6 * groups(p.m));  // at 70 % of 128 per clock
  const double decode_us = instructions / (128.0 * 1700.0 * 0.7 * limits.sms);
  const double stream =
      std::max(decode_us, static_cast<double>(packed_linear_bytes(p.format, p.n, p.k)) / limits.bytes_per_us);
  // A warp with only one or two units spends most of its time waiting for memory.
  const double share = static_cast<double>(choice.shape.units_split) / warps_k;
  const double waves = static_cast<double>(blocks) / (static_cast<double>(limits.sms) * resident);
  const double used = waves < 1 ? std::min(1.0, 1.6 * waves) : waves / std::ceil(waves - 0.05);
  const double uneven = share / std::ceil(share);
  const double x_bytes = static_cast<double>(blocks / passes / splits) * 2.0 * static_cast<double>(p.k * p.m);
  choice.us = 2.4 + stream / (0.5 + 0.5 * used) / (0.6 + 0.4 * uneven) + 0.5 * x_bytes / (1.3 * limits.bytes_per_us) +
              0.3 * waves + (splits > 1 ? 0.5 + 0.1 * splits : 0) + 0.05 * warps_k +
              0.8 * static_cast<double>(ceil_div(choice.shape.units_split, choice.shape.units_chunk) - 1);
  return choice;
}

Choice choose(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  const int most = (shared_kilobytes(limits) - 4) * 1024 / staged_unit_bytes(p);  // units of x that fit a block
  Choice best = cost(p, limits, 1, 1);
  for (int warps_k = 1; warps_k <= std::min({kPackedWarps, units, most}); warps_k *= 2) {
    for (int splits = 1; splits <= (has_clusters(limits) ? 8 : 1) && splits * warps_k <= units; splits *= 2) {
      const Choice choice = cost(p, limits, warps_k, splits);
      if (choice.us < best.us) best = choice;
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && ceil_div(p.m, 32) <= 65535;
}

// The model above ranks shapes well, but measured times grow faster with the number of tokens.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  return choose(p, limits).us * (p.m == 1 ? 1.2 : p.m <= 8 ? 1.5 : p.m <= 16 ? 2.0 : 2.5);
}

PackedParams packed_params(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  PackedParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = static_cast<const __nv_bfloat16*>(a.x);
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.out = linear_output(p, a);
  return params;
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  PackedParams params = packed_params(p, a);
  params.shape = choose(p, limits).shape;
  LaunchShape shape;
  const int64_t tiles = kPackedWarps / params.shape.warps_k;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(ceil_div(p.n, kUnitRows), tiles) * params.shape.splits),
                    static_cast<unsigned>(ceil_div(p.m, 8 * groups(p.m))));
  shape.threads = kPackedThreads;
  shape.cluster = params.shape.splits;
  return with_packed_format(p.format,
                            [&](auto format) { return launch_packed<format.value>(params, shape, step, groups(p.m)); });
}

}  // namespace

const CudaLinearKernel& packed_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-mma", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
