// Host side of the flat kernel for quantized weights: in how many parts it takes K, estimate, launch.
#include <algorithm>
#include <cmath>

#include "kernels/linear/cuda/quantized/flat.cuh"
#include "kernels/linear/cuda/quantized/flat.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_FLAT_INSTANCE(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

int tokens_of(int64_t m) { return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64; }

bool fits(DType format, int tokens, FlatShape shape, int units) {
  return with_packed_format(format, [&](auto f) {
           const bool fit = tokens == 8    ? fit_flat<f.value, 8>(shape, units)
                            : tokens == 16 ? fit_flat<f.value, 16>(shape, units)
                            : tokens == 32 ? fit_flat<f.value, 32>(shape, units)
                                           : fit_flat<f.value, 64>(shape, units);
           return fit ? cudaSuccess : cudaErrorInvalidValue;
         }) == cudaSuccess;
}

struct Choice {
  FlatShape shape;
  double us;
};

// Measured for Q4_0, Q8_0 and Q4_K: microseconds in which all warps of a block multiply a unit each.
double round_us(DType format, int tokens) {
  const bool more = format == DType::Q4_1 || format == DType::Q4_K || format == DType::Q5_0 || format == DType::Q5_1 ||
                    format == DType::Q5_K || format == DType::Q6_K;
  const bool table = format == DType::IQ4_NL || format == DType::IQ4_XS;
  return (table ? 1.6 : more ? 1.4 : 1.1) + 0.0125 * tokens;
}

// The parts of K are added at the end. Graphics processing clusters do not hold a multiple of 4 or 8 blocks, so large
// clusters do not fill the device.
double cost(const CudaLinearProblem& p, const CudaLimits& limits, const FlatShape& shape) {
  const int64_t clusters = ceil_div(p.n, shape.tiles() * kUnitRows), blocks = clusters * shape.splits;
  const int64_t at_once = limits.sms / shape.splits - (shape.splits >= 4 ? 3 : 0);
  const int64_t waves = ceil_div(clusters, std::max<int64_t>(1, at_once));
  const int64_t rounds = ceil_div(ceil_div(ceil_div(p.k, kUnitColumns), shape.splits), shape.ways);
  const int tokens = static_cast<int>(p.m);
  const double ends = 2 + (shape.ways > 1 ? 0.5 : 0) + (shape.splits > 1 ? 1 + 0.3 * shape.splits + 0.02 * tokens : 0);
  const double us = static_cast<double>(waves) * (ends + static_cast<double>(rounds) * round_us(p.format, tokens));
  return std::max(us, stream_us(p, limits, blocks, 1, 3.5));
}

// Depends on m only through tokens_of(m), so that a row's bits do not change with every batch.
Choice choose(CudaLinearProblem p, const CudaLimits& limits) {
  p.m = tokens_of(p.m);
  Choice best{{}, 1e30};
  const int64_t units = ceil_div(p.k, kUnitColumns);
  for (int ways = 1; ways <= kFlatMostWays; ways *= 2) {
    for (int splits = 1; splits <= 8 && (splits == 1 || splits * ways <= units); splits *= 2) {
      const FlatShape shape{ways, splits, 0, 0};
      if (!fits(p.format, static_cast<int>(p.m), shape, static_cast<int>(ceil_div(units, splits)))) continue;
      const double us = cost(p, limits, shape);
      if (us < best.us) best = {shape, us};
    }
  }
  return best;
}

// x [m, k] as [k / 64][m][64], so that one copy takes several boxes of 64 columns. k must be a multiple of 64.
bool describe_chunks(CUtensorMap& map, const void* data, int64_t m, int64_t k, int64_t stride, int tokens) {
  using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = reinterpret_cast<EncodeTiled>(driver_function("cuTensorMapEncodeTiled", 12000));
  if (encode == nullptr) return false;
  const cuuint64_t sizes[3] = {kFlatBox, static_cast<cuuint64_t>(m), static_cast<cuuint64_t>(k / kFlatBox)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride) * 2, kFlatBox * 2};
  const cuuint32_t boxes = static_cast<cuuint32_t>(tokens <= 32 ? FlatChunk<32>::kColumns : FlatChunk<64>::kColumns);
  const cuuint32_t extent[3] = {kFlatBox, static_cast<cuuint32_t>(tokens), boxes / kFlatBox}, steps[3] = {1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes, strides, extent, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m >= kFlatLeastTokens && p.m <= kFlatMostTokens;
}

// Both layers must consist of whole parts of kNormPart columns, and the reader takes four parts at a time.
bool splits_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.n % kTileRows == 0 && p.k % (4 * kNormPart) == 0;
}

bool can_store_ahead(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  return p.y == DType::F32 && p.accumulate && !p.gate_up && a.squares == nullptr && linear_output(p, a).aligned &&
         a.ahead.stride % 4 == 0;
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) { return choose(p, limits).us; }

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if ((a.squares != nullptr || a.ahead.weights != nullptr) && !splits_norm(p, limits)) return cudaErrorInvalidValue;
  if (a.ahead.weights != nullptr && !can_store_ahead(p, a)) return cudaErrorInvalidValue;
  const int tokens = tokens_of(p.m);
  CUtensorMap x;
  FlatParams params{};
  params.chunked = p.k % kFlatBox == 0;
  if (!(params.chunked ? describe_chunks(x, a.x, p.m, p.k, a.x_stride, tokens)
                       : describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kFlatBox, tokens, true}))) {
    return cudaErrorInvalidValue;
  }
  params.weights = static_cast<const uint8_t*>(a.weights);
  params.shape = choose(p, limits).shape;
  params.units = static_cast<int>(ceil_div(p.k, kUnitColumns));
  params.units_split = static_cast<int>(ceil_div(params.units, params.shape.splits));
  params.norm = {a.ahead, a.squares, a.epsilon, static_cast<int>(p.k)};
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, params.shape.tiles() * kUnitRows) * params.shape.splits));
  shape.cluster = params.shape.splits;
  return with_packed_format(p.format,
                            [&](auto format) { return launch_flat<format.value>(params, x, shape, step, tokens); });
}

}  // namespace

const CudaLinearKernel& packed_flat_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-flat", can_run, estimate_us, run, nullptr, splits_norm};
  return kKernel;
}

}  // namespace millrace
