#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/ssm_scan/cuda/kernels.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 32;  // columns of one head that a block computes
constexpr int kParts = 4;     // threads that share a column's state
constexpr int kTile = 16;     // rows whose inputs are staged in shared memory at once
constexpr int kMostState = 256;

struct Params {
  SsmShape shape;
  GpuMatrix x, b, c, dt, out;
  const float *dt_bias, *a, *d;
  float least_step, most_step;
  std::byte* state;
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  int32_t least_rows, most_rows;  // other slices are left out
};

// One block per sequence, head and kColumns of its columns. The state stays in registers over all rows of the slice:
// eight columns per warp, and a column's states lie with four lanes in groups of four, so that two shuffles add up an
// output and no row needs a barrier. kGroups groups per lane cover 16 * kGroups states; those beyond the shape are
// zero.
template <int kGroups>
__global__ void __launch_bounds__(kThreads) ssm_scan(const __grid_constant__ Params p) {
  constexpr int kState = kGroups * kParts * 4;
  __shared__ float4 b[kTile][kState / 4], c[kTile][kState / 4];
  __shared__ float x[kTile][kColumns], step[kTile], decay[kTile];
  allow_dependents();
  wait_for_predecessors();
  const SliceTables::Slice slice = p.slices[blockIdx.y];
  if (slice.rows < p.least_rows || slice.rows > p.most_rows) return;
  const int dim = p.shape.head_dim, n = p.shape.state, pieces = (dim + kColumns - 1) / kColumns;
  const int head = static_cast<int>(blockIdx.x) / pieces, first = static_cast<int>(blockIdx.x) % pieces * kColumns;
  const int group = head / (p.shape.heads / p.shape.groups);
  const int lane = static_cast<int>(threadIdx.x) % 32, part = lane / 8;
  const int local = static_cast<int>(threadIdx.x) / 32 * 8 + lane % 8, column = first + local;
  auto* state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[blockIdx.y]) * p.stride) +
                int64_t{head} * n * dim + column;
  float s[kGroups][4];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = (g * kParts + part) * 4 + j;
      s[g][j] = column < dim && i < n ? state[int64_t{i} * dim] : 0.0f;
    }
  }
  const float d = p.d[head];
  for (int begin = 0; begin < slice.rows; begin += kTile) {
    const int rows = min(kTile, slice.rows - begin);
    const int64_t row = slice.first_row + begin;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows * kState; i += kThreads) {
      const int t = i / kState, at = i % kState;
      reinterpret_cast<float*>(b[t])[at] = at < n ? p.b.get(row + t, int64_t{group} * n + at) : 0.0f;
      reinterpret_cast<float*>(c[t])[at] = at < n ? p.c.get(row + t, int64_t{group} * n + at) : 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < rows * kColumns; i += kThreads) {
      const int t = i / kColumns, at = i % kColumns;
      x[t][at] = first + at < dim ? p.x.get(row + t, int64_t{head} * dim + first + at) : 0.0f;
    }
    if (static_cast<int>(threadIdx.x) < rows) {
      const int t = static_cast<int>(threadIdx.x);
      const float raw = p.dt.get(row + t, head) + p.dt_bias[head];
      step[t] = fminf(fmaxf(raw > 20 ? raw : log1pf(expf(raw)), p.least_step), p.most_step);
      decay[t] = expf(step[t] * p.a[head]);
    }
    __syncthreads();
    for (int t = 0; t < rows; ++t) {
      const float value = x[t][local], input = value * step[t], keep = decay[t];
      float sum = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float4 in = b[t][g * kParts + part], out = c[t][g * kParts + part];
        s[g][0] = fmaf(input, in.x, s[g][0] * keep);
        s[g][1] = fmaf(input, in.y, s[g][1] * keep);
        s[g][2] = fmaf(input, in.z, s[g][2] * keep);
        s[g][3] = fmaf(input, in.w, s[g][3] * keep);
        sum = fmaf(s[g][0], out.x, sum);
        sum = fmaf(s[g][1], out.y, sum);
        sum = fmaf(s[g][2], out.z, sum);
        sum = fmaf(s[g][3], out.w, sum);
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 8);
      sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      if (part == 0 && column < dim) p.out.set(row + t, int64_t{head} * dim + column, fmaf(d, value, sum));
    }
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = (g * kParts + part) * 4 + j;
      if (column < dim && i < n) state[int64_t{i} * dim] = s[g][j];
    }
  }
}

using Scan = void (*)(Params);

Scan scan_of(int state) {
  if (state <= 16) return ssm_scan<1>;
  if (state <= 32) return ssm_scan<2>;
  if (state <= 64) return ssm_scan<4>;
  if (state <= 128) return ssm_scan<8>;
  return ssm_scan<16>;
}

class CudaSsmScan final : public Kernel<SsmScanOp> {
 public:
  std::string_view name() const override { return "cuda_sequential"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.shape.state <= kMostState;
  }
  // A decode step moves the states of all sequences; the rows of a prompt follow each other.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double states = double(p.sequences) * double(p.shape.state_elements());
    return gpu_us(8.0 * states, hardware, 0.8) + 0.15 * double(p.rows) / double(p.sequences);
  }
  void run(const Args& a, const Executor& executor) const override {
    run_ssm_scan_by_rows(a, executor, 1, std::numeric_limits<int32_t>::max());
  }
};

}  // namespace

void run_ssm_scan_by_rows(const SsmScanOp::Args& a, const Executor& executor, int32_t least_rows, int32_t most_rows) {
  if (a.sequences.empty()) return;
  const int pieces = (a.shape.head_dim + kColumns - 1) / kColumns;
  const dim3 grid(static_cast<unsigned>(a.shape.heads * pieces), static_cast<unsigned>(a.sequences.size()));
  const Params params{
      a.shape,  a.x,          a.b,         a.c,     a.dt,     a.out,           a.dt_bias,      a.a,
      a.d,      a.least_step, a.most_step, a.state, a.stride, a.tables.slices, a.tables.slots, least_rows,
      most_rows};
  check_launch(launch_kernel(scan_of(a.shape.state), grid, kThreads, 0, cuda_launch(executor), params),
               "starting a scan");
}

const Kernel<SsmScanOp>& ssm_scan_by_rows() {
  static const CudaSsmScan kernel;
  return kernel;
}

KernelList<SsmScanOp> SsmScanOp::cuda() { return {&ssm_scan_by_chunks(), &ssm_scan_by_rows()}; }

}  // namespace millrace
