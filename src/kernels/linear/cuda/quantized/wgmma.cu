// Host side of the warpgroup kernel for quantized weights: tokens per block, splits of K, and cost.
#include <algorithm>
#include <cmath>

#include "kernels/linear/cuda/quantized/flat.h"
#include "kernels/linear/cuda/quantized/formats.h"
#include "kernels/linear/cuda/quantized/wgmma.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_WGMMA_INSTANCE(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int kMaxTokens = 256;
constexpr int kRows = PackedTile<DType::Q4_0, kMaxTokens>::kRows;

int tokens_of(int64_t m) { return m <= 128 ? 128 : kMaxTokens; }

// Splits K if the rows alone leave much of the device idle and each block still has some units.
int splits_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t blocks = ceil_div(p.n, kRows) * ceil_div(p.m, tokens_of(p.m)), units = ceil_div(p.k, kUnitColumns);
  int splits = 1;
  while (splits < 8 && 10 * blocks * splits < 7 * limits.sms && units / (2 * splits) >= 2) splits *= 2;
  return splits;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m > kFlatMostTokens &&
         ceil_div(p.n, kRows) * ceil_div(p.m, kMaxTokens) < 1 << 24;
}

// Measured: a unit of columns takes 1.4 us, more with more tokens. Many tokens are bound by the tensor cores. Then the
// cluster adds its parts.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int tokens = tokens_of(p.m), splits = splits_of(p, limits);
  const int64_t row_blocks = ceil_div(p.n, kRows), token_blocks = ceil_div(p.m, tokens);
  const int64_t blocks = row_blocks * token_blocks * splits, units = ceil_div(ceil_div(p.k, kUnitColumns), splits);
  const double rounds = std::ceil(static_cast<double>(blocks) / limits.sms - 0.05);  // one block per multiprocessor
  double unit_us = 1.4 * (1 + 0.0025 * tokens);
  if (p.format == DType::Q4_1 || p.format == DType::Q4_K) unit_us *= 1.1;
  if (p.format == DType::Q5_0 || p.format == DType::Q5_1 || p.format == DType::Q5_K || p.format == DType::Q6_K ||
      p.format == DType::Q8_0) {
    unit_us *= 1.4;
  }
  if (p.format == DType::IQ4_NL || p.format == DType::IQ4_XS) unit_us *= 2;
  const double flops = 2.0 * kRows * kUnitColumns * tokens;  // of a unit, on one multiprocessor
  const double product_us = flops * limits.sms / (1.1 * limits.flops_per_us);
  const double ends_us = 3.5 + 0.03 * tokens + (splits > 1 ? 1 + 0.02 * (splits - 1) * tokens : 0);
  const double long_run = token_blocks > 4 ? 1.2 : 1;  // clocks drop under this load
  const double streamed = stream_us(p, limits, blocks, 1, 4.5);
  return std::max(streamed, long_run * rounds * (static_cast<double>(units) * std::max(unit_us, product_us) + ends_us));
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.squares != nullptr || a.ahead.weights != nullptr) return cudaErrorInvalidValue;
  const int tokens = tokens_of(p.m);
  CUtensorMap x;
  if (!describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kChunk, tokens, true})) return cudaErrorInvalidValue;
  PackedWgmmaParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.splits = splits_of(p, limits);
  params.units_split = static_cast<int>(ceil_div(params.units, params.splits));
  params.token_blocks = static_cast<int>(ceil_div(p.m, tokens));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kRows) * params.token_blocks * params.splits));
  shape.cluster = params.splits;
  return with_packed_format(p.format,
                            [&](auto format) { return launch_wgmma<format.value>(params, x, shape, step, tokens); });
}

}  // namespace

const CudaLinearKernel& packed_wgmma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-wgmma", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
