// The warpgroup kernel for quantized weights: tokens of a block, blocks that share K, and what that costs.
#include <algorithm>
#include <cmath>

#include "kernels/linear/cuda/packed_formats.h"
#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_INSTANCES(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

constexpr int kMinTokens = 16, kMaxTokens = 256;
constexpr int kRows = PackedTile<DType::Q4_0, kMinTokens>::kRows;

int tokens_of(int64_t m) {
  int tokens = kMinTokens;
  while (tokens < m && tokens < kMaxTokens) tokens *= 2;
  return tokens;
}

// Two blocks on a multiprocessor where x leaves room for it.
int resident_of(int tokens) { return tokens <= 64 ? 2 : 1; }

// Blocks along K, where the rows alone leave much of the device idle and each still has some units to itself.
int splits_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int tokens = tokens_of(p.m);
  const int64_t blocks = ceil_div(p.n, kRows) * ceil_div(p.m, tokens), units = ceil_div(p.k, kUnitColumns);
  int splits = 1;
  while (splits < 8 && 10 * blocks * splits < 8 * limits.sms * resident_of(tokens) && units / (2 * splits) >= 2) {
    splits *= 2;
  }
  return splits;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && ceil_div(p.n, kRows) * ceil_div(p.m, kMaxTokens) < 1 << 24;
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int tokens = tokens_of(p.m), splits = splits_of(p, limits);
  const int64_t row_blocks = ceil_div(p.n, kRows), token_blocks = ceil_div(p.m, tokens);
  const int64_t blocks = row_blocks * token_blocks * splits;
  const double elements = static_cast<double>(p.n) * static_cast<double>(p.k), m = static_cast<double>(p.m);
  const double waves = std::ceil(static_cast<double>(blocks) / (limits.sms * resident_of(tokens)));
  const double filled = static_cast<double>(blocks) / (waves * limits.sms * resident_of(tokens));
  const double streamed = stream_us(p, limits, blocks, resident_of(tokens), 4.5);
  const double decode_us = elements * static_cast<double>(token_blocks) * 2.8 / (128.0 * 1700.0 * 0.75 * limits.sms);
  const double flops = 2 * elements * static_cast<double>(token_blocks * tokens);
  const double busy = std::min(1.0, std::max(filled, 0.1) * (tokens < kMaxTokens ? 1.5 : 1.0));
  const double x_us = 0.2 * 2 * static_cast<double>(p.k) * m * static_cast<double>(row_blocks) / limits.bytes_per_us;
  const double join_us = splits > 1 ? 0.2 + 0.016 * (splits - 1) * m : 0;
  return std::max({streamed + x_us, 5 + decode_us / busy, 8 + flops / (0.62 * limits.flops_per_us) / busy}) + join_us;
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  const int tokens = tokens_of(p.m);
  CUtensorMap x;
  if (!describe_matrix(x, p.x, a.x, p.m, p.k, a.x_stride, kChunk, tokens)) return cudaErrorInvalidValue;
  PackedWgmmaParams params{};
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.splits = splits_of(p, limits);
  params.units_split = static_cast<int>(ceil_div(params.units, params.splits));
  params.token_blocks = static_cast<int>(ceil_div(p.m, tokens));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kRows) * params.token_blocks * params.splits));
  shape.cluster = params.splits;
  const int room = (resident_of(tokens) == 2 ? 112 : 224) * 1024;
  return with_packed_format(
      p.format, [&](auto format) { return launch_wgmma<format.value>(params, x, shape, step, tokens, room); });
}

}  // namespace

const CudaLinearKernel& packed_wgmma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-wgmma", "flat", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
