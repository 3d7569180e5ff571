// The flat kernels for quantized weights: which shape of work for which problem. They differ in how many warps of a
// block share a tile of rows; more of them suit few rows, fewer suit many tokens.
#include "kernels/linear/cuda/packed_bulk.cuh"

#include <algorithm>
#include <array>
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

// How many units' x fits into the shared memory of a block, beside the partial sums.
int room_for_units(const CudaLinearProblem& p, const CudaLimits& limits, int resident) {
  return ((shared_kilobytes(limits) - 15) / resident - 5 * groups(p.m) - 1) * 1024 / staged_unit_bytes(p);
}

struct Choice {
  PackedShape shape;
  int resident;  // blocks on a multiprocessor
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

int64_t row_blocks(const CudaLinearProblem& p, int warps_k) {
  return ceil_div(ceil_div(p.n, kUnitRows), kPackedWarps / warps_k);
}

int64_t passes(const CudaLinearProblem& p) { return ceil_div(p.m, 8 * groups(p.m)); }

// Staging x costs at the start, and again for every tile when not all of it fits into the block's shared memory.
Choice cost(const CudaLinearProblem& p, const CudaLimits& limits, int warps_k, int splits, int resident) {
  Choice choice{{warps_k, splits, 0, 0}, resident, 0};
  choice.shape.units_split = static_cast<int>(ceil_div(ceil_div(p.k, kUnitColumns), splits));
  const int room = room_for_units(p, limits, resident);
  choice.shape.units_chunk =
      std::min(std::max(1, room / warps_k) * warps_k, static_cast<int>(round_up(choice.shape.units_split, warps_k)));

  const int64_t blocks = row_blocks(p, warps_k) * splits * passes(p), slots = int64_t{limits.sms} * resident;
  const double share = static_cast<double>(ceil_div(choice.shape.units_split, warps_k));
  const double staged = static_cast<double>(choice.shape.units_split) * staged_unit_bytes(p);
  const double chunks = static_cast<double>(ceil_div(choice.shape.units_split, choice.shape.units_chunk));
  const auto fill = [&](double at_once) { return chunks + at_once * staged / 50e3; };  // 50 KB per microsecond
  const auto round = [&](double at_once) {
    return share * unit_us(p, limits, kPackedWarps * at_once) + 0.2 + (chunks > 1 ? fill(at_once) : 0);
  };
  const int64_t rest = blocks % slots;
  choice.us = 2.6 + (splits > 1 ? 1.2 : 0) + static_cast<double>(blocks / slots) * round(resident);
  if (rest > 0) choice.us += round(static_cast<double>(ceil_div(rest, limits.sms)));
  if (chunks == 1) choice.us += fill(std::min<double>(resident, static_cast<double>(ceil_div(blocks, limits.sms))));
  return choice;
}

Choice choose(const CudaLinearProblem& p, const CudaLimits& limits, int warps_k) {
  const int64_t units = ceil_div(p.k, kUnitColumns);
  Choice best = cost(p, limits, warps_k, 1, 1);
  for (int splits = 1; splits <= (has_clusters(limits) ? 8 : 1) && splits * warps_k <= units; splits *= 2) {
    for (int resident = 1; resident <= packed_blocks_resident(p.format, groups(p.m)); ++resident) {
      if (resident > 1 && room_for_units(p, limits, resident) < warps_k) continue;
      const Choice choice = cost(p, limits, warps_k, splits, resident);
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

template <int kWarpsK>
bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_packed(p, limits) && kWarpsK <= ceil_div(p.k, kUnitColumns) && kWarpsK <= room_for_units(p, limits, 1);
}

template <int kWarpsK>
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  return choose(p, limits, kWarpsK).us;
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

template <int kWarpsK>
cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  const Choice choice = choose(p, limits, kWarpsK);
  PackedParams params = packed_params(p, a);
  params.shape = choice.shape;
  LaunchShape shape;
  const int64_t slots = int64_t{limits.sms} * choice.resident;
  const int64_t staying = std::max<int64_t>(1, slots / (choice.shape.splits * passes(p)));
  shape.grid = dim3(static_cast<unsigned>(std::min(row_blocks(p, kWarpsK), staying) * choice.shape.splits),
                    static_cast<unsigned>(passes(p)));
  shape.threads = kPackedThreads;
  shape.cluster = choice.shape.splits;
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
  const double most = std::ceil(tiles / (limits.sms * shape.resident)) * shape.resident * units;  // units, busiest one
  const double wide = p.format == DType::Q4_0 || p.format == DType::Q4_K ? 1 : 1.6;
  const double instructions = (150 * wide + 110.0 * groups(p.m)) * (p.format == DType::Q4_0 ? 1 : 1.25);
  const double stream_us =
      std::max({tiles * units * unit_bytes / limits.bytes_per_us,
                most * unit_bytes * limits.sms / (1.2 * limits.bytes_per_us), most * instructions / (4 * 0.6 * 1700)});
  shape.us = 3.5 + shape.resident * units * staged_unit_bytes(p) / 50e3 + stream_us;
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

std::span<const CudaLinearKernel> packed_mma_kernels() {
  static constexpr std::array<CudaLinearKernel, 4> kKernels{{
      {"packed-8", "flat", can_run<8>, estimate_us<8>, run<8>},
      {"packed-4", "flat", can_run<4>, estimate_us<4>, run<4>},
      {"packed-2", "flat", can_run<2>, estimate_us<2>, run<2>},
      {"packed-1", "flat", can_run<1>, estimate_us<1>, run<1>},
  }};
  return kKernels;
}

}  // namespace millrace
