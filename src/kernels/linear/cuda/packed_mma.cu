// The flat kernel for quantized weights: which shape of work for which problem.
#include "kernels/linear/cuda/packed_mma.cuh"

#include <algorithm>
#include <cmath>

namespace millrace {

#define MILLRACE_PACKED_FORMATS(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS)

#define MILLRACE_DECLARE(F) \
  extern template cudaError_t launch_packed<DType::F>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
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

// A warp works through its units one after the other. A unit takes as long as memory needs to answer, as the bandwidth
// that the warps of a multiprocessor share allows, or as its instructions take, whichever is longest.
double unit_us(const CudaLinearProblem& p, const CudaLimits& limits, double warps) {
  constexpr double kLatencyUs = 1.5, kInstructionsPerUs = 4 * 0.75 * 1700;
  const double bytes = static_cast<double>(packed_linear_bytes(p.format, kUnitRows, kUnitColumns));
  const double wide = p.format == DType::Q4_0 || p.format == DType::Q4_K ? 1 : 1.6;
  const double instructions = (150 * wide + 110.0 * groups(p.m)) * (p.format == DType::Q4_0 ? 1 : 1.25);
  return std::max(
      {kLatencyUs, warps * bytes * limits.sms / limits.bytes_per_us, warps * instructions / kInstructionsPerUs});
}

Choice cost(const CudaLinearProblem& p, const CudaLimits& limits, int warps_k, int splits) {
  const int units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  const int resident = packed_blocks_resident(p.format, groups(p.m));
  Choice choice{{warps_k, splits, 0, 0}, 0};
  choice.shape.units_split = static_cast<int>(ceil_div(units, splits));
  const int room = std::max(1, 200 * 1024 / resident / staged_unit_bytes(p) / warps_k) * warps_k;
  choice.shape.units_chunk = std::min(room, static_cast<int>(round_up(choice.shape.units_split, warps_k)));

  const int64_t passes = ceil_div(p.m, 8 * groups(p.m));
  const int64_t blocks = ceil_div(ceil_div(p.n, kUnitRows), kPackedWarps / warps_k) * splits * passes;
  const double share = static_cast<double>(ceil_div(choice.shape.units_split, warps_k));
  const double staged = static_cast<double>(choice.shape.units_split) * staged_unit_bytes(p);
  // Blocks that run at once on a multiprocessor: x goes through the second-level cache, at some 50 KB per microsecond.
  const auto prologue = [&](double at_once) { return 0.3 + at_once * staged / 50e3; };
  const auto stream = [&](double at_once) { return share * unit_us(p, limits, kPackedWarps * at_once); };
  const int64_t slots = static_cast<int64_t>(limits.sms) * resident, rest = blocks % slots;
  const double waves = static_cast<double>(blocks / slots), last = static_cast<double>(ceil_div(rest, limits.sms));
  choice.us = 2.4 + (splits > 1 ? 1.2 : 0) + waves * (stream(resident) + 0.5 * prologue(resident));
  if (rest > 0) choice.us += stream(last) + (waves > 0 ? 0.5 : 1.0) * prologue(last);
  return choice;
}

Choice choose(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  Choice best = cost(p, limits, 1, 1);
  for (int warps_k = 1; warps_k <= kPackedWarps && warps_k <= units; warps_k *= 2) {
    for (int splits = 1; splits <= (limits.capability >= 90 ? 8 : 1) && splits * warps_k <= units; splits *= 2) {
      const Choice choice = cost(p, limits, warps_k, splits);
      if (choice.us < best.us) best = choice;
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  if (p.x != DType::BF16 || limits.capability < 80 || p.k % 32 != 0 || ceil_div(p.m, 32) > 65535) return false;
  switch (p.format) {
#define MILLRACE_CASE(F) case DType::F:
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    return true;
    default:
      return false;
  }
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) { return choose(p, limits).us; }

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  PackedParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.x = static_cast<const __nv_bfloat16*>(a.x);
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.shape = choose(p, limits).shape;
  params.out = linear_output(p, a);
  LaunchShape shape;
  const int64_t tiles = kPackedWarps / params.shape.warps_k;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(ceil_div(p.n, kUnitRows), tiles) * params.shape.splits),
                    static_cast<unsigned>(ceil_div(p.m, 8 * groups(p.m))));
  shape.threads = kPackedThreads;
  shape.cluster = params.shape.splits;
  switch (p.format) {
#define MILLRACE_CASE(F) \
  case DType::F:         \
    return launch_packed<DType::F>(params, shape, step, groups(p.m));
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const CudaLinearKernel& packed_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-mma", "flat", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
