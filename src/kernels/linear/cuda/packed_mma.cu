// The flat kernels for quantized weights: which shape of work for which problem. They differ in how many warps of a
// block share a tile of rows; more of them suit few rows, fewer suit many tokens.
#include "kernels/linear/cuda/packed_bulk.cuh"

#include <algorithm>
#include <cmath>

namespace millrace {

#define MILLRACE_PACKED_FORMATS(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS)

#define MILLRACE_DECLARE(F)                                                                                           \
  extern template cudaError_t launch_packed<DType::F>(const PackedParams&, const LaunchShape&, const CudaStep&, int); \
  extern template cudaError_t launch_bulk<DType::F>(BulkParams, LaunchShape, const CudaStep&, int, int);
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

// Weights stream at the bandwidth of the device or at the rate at which they are decoded; every block reads the x of
// its columns through the second-level cache; a cluster and partial sums cost a little more at the end.
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
  const double instructions = elements * (1.6 + 0.6 * groups(p.m));  // 128 are issued per clock, of which 70 % is good
  const double decode_us = instructions / (128.0 * 1700.0 * 0.7 * limits.sms);
  const double stream =
      std::max(decode_us, static_cast<double>(packed_linear_bytes(p.format, p.n, p.k)) / limits.bytes_per_us);
  // A warp that has only a unit or two to do waits for memory most of its life.
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
  const int most = (shared_kilobytes(limits) - 4) * 1024 / staged_unit_bytes(p);  // units whose x one block can hold
  Choice best = cost(p, limits, 1, 1);
  for (int warps_k = 1; warps_k <= std::min({kPackedWarps, units, most}); warps_k *= 2) {
    for (int splits = 1; splits <= (has_clusters(limits) ? 8 : 1) && splits * warps_k <= units; splits *= 2) {
      const Choice choice = cost(p, limits, warps_k, splits);
      if (choice.us < best.us) best = choice;
    }
  }
  return best;
}

bool is_packed(const CudaLinearProblem& p, const CudaLimits& limits) {
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

// The model above ranks shapes well; measured, blocks take longer the more tokens they have.
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

// Fed by bulk copies: x stays in shared memory for all of K, and what is left is the ring.
struct BulkShape {
  int resident, room;  // blocks on a multiprocessor, bytes for each
  double us;
};

BulkShape bulk_shape(const CudaLinearProblem& p, const CudaLimits& limits) {
  const double units = static_cast<double>(ceil_div(p.k, kUnitColumns)), tiles = static_cast<double>(ceil_div(p.n, 16));
  const double unit_bytes = static_cast<double>(packed_linear_bytes(p.format, kUnitRows, kUnitColumns));
  const double fixed = units * staged_unit_bytes(p) + 64.0 * static_cast<double>(p.m) + 10240.0 * groups(p.m);
  const double slot = kPackedWarps * unit_bytes;
  BulkShape shape{groups(p.m) == 1 && fixed + 3 * slot <= 110 * 1024 ? 2 : 1, 0, 0};
  shape.room = (shape.resident == 2 ? 110 : 220) * 1024;
  if (fixed + 2 * slot > shape.room) return {0, 0, 0};
  // A warp decodes one unit after the other, and its instructions wait for each other more than for memory.
  const double wide = p.format == DType::Q4_0 || p.format == DType::Q4_K ? 1 : 1.6;
  const double instructions = (150 * wide + 110.0 * groups(p.m)) * (p.format == DType::Q4_0 ? 1 : 1.25);
  const double alone_us = 0.08 + 0.0042 * instructions;
  const double streamed_us = shape.resident * slot * limits.sms / limits.bytes_per_us;
  const double unit_us = shape.resident == 1 ? std::max(alone_us, streamed_us) : 1.2 * std::max(alone_us, streamed_us);
  const double rounds = std::ceil(tiles / (limits.sms * shape.resident)) * std::ceil(units / kPackedWarps);
  shape.us = 3.2 + units * staged_unit_bytes(p) / 20e3 + rounds * unit_us;
  return shape;
}

bool can_run_bulk(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && has_clusters(limits) && p.m <= 16 && bulk_shape(p, limits).resident > 0;
}

double estimate_bulk_us(const CudaLinearProblem& p, const CudaLimits& limits) { return bulk_shape(p, limits).us; }

cudaError_t run_bulk(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                     const CudaStep& step) {
  const BulkShape bulk = bulk_shape(p, limits);
  const BulkParams params{packed_params(p, a), 0};
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(std::min(ceil_div(p.n, kUnitRows), int64_t{limits.sms} * bulk.resident)));
  shape.threads = kBulkThreads;
  switch (p.format) {
#define MILLRACE_CASE(F) \
  case DType::F:         \
    return launch_bulk<DType::F>(params, shape, step, groups(p.m), bulk.room);
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const CudaLinearKernel& packed_bulk_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-bulk", "flat", can_run_bulk, estimate_bulk_us, run_bulk};
  return kKernel;
}

const CudaLinearKernel& packed_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"packed-mma", "flat", is_packed, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
