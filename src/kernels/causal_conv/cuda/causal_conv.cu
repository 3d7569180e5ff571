#include "hardware/cuda_device.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 32;  // of a block, at least kMostTaps

struct Params {
  GpuMatrix x, out;
  const float *weight, *bias;
  std::byte* state;
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  bool silu;
};

// One thread per channel, one block per kRows rows of a sequence. Only the first block of a sequence reads its state,
// so that block also writes the new state; the rows of x that it keeps are inputs and do not change.
template <int taps>
__global__ void __launch_bounds__(kThreads) causal_conv(const __grid_constant__ Params p) {
  constexpr int kKept = taps - 1;
  allow_dependents();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool inside = c < p.x.cols;
  float weight[taps], window[taps], bias = 0;
  if (inside) {
#pragma unroll
    for (int j = 0; j < taps; ++j) weight[j] = p.weight[c * taps + j];
    if (p.bias != nullptr) bias = p.bias[c];
  }
  wait_for_predecessors();
  const SliceTables::Slice slice = p.slices[blockIdx.z];
  const int begin = static_cast<int>(blockIdx.y) * kRows, end = min(begin + kRows, slice.rows);
  if (!inside || begin >= slice.rows) return;
  auto* state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[blockIdx.z]) * p.stride) + c;
  const auto input = [&](int t) { return t < 0 ? state[(kKept + t) * p.x.cols] : p.x.get(slice.first_row + t, c); };
#pragma unroll
  for (int j = 0; j < kKept; ++j) window[j + 1] = input(begin - kKept + j);
  for (int t = begin; t < end; ++t) {
#pragma unroll
    for (int j = 0; j < kKept; ++j) window[j] = window[j + 1];
    window[kKept] = p.x.get(slice.first_row + t, c);
    float sum = bias;
#pragma unroll
    for (int j = 0; j < taps; ++j) sum = fmaf(weight[j], window[j], sum);
    p.out.set(slice.first_row + t, c, p.silu ? sum / (1 + expf(-sum)) : sum);
  }
  if (begin > 0) return;
    // Oldest first: a place is read before it is overwritten.
#pragma unroll
  for (int i = 0; i < kKept; ++i) state[i * p.x.cols] = input(slice.rows - kKept + i);
}

class CudaCausalConv final : public Kernel<CausalConvOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.taps >= 1 && p.taps <= CausalConvOp::kMostTaps;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(8.0 * double(p.rows * p.channels), hardware, 0.5);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.sequences.empty()) return;
    constexpr void (*kEach[])(Params) = {causal_conv<1>, causal_conv<2>, causal_conv<3>, causal_conv<4>,
                                         causal_conv<5>, causal_conv<6>, causal_conv<7>, causal_conv<8>};
    const dim3 grid(static_cast<unsigned>((a.x.cols + kThreads - 1) / kThreads),
                    static_cast<unsigned>((a.tables.longest_slice + kRows - 1) / kRows),
                    static_cast<unsigned>(a.sequences.size()));
    const Params params{a.x, a.out, a.weight, a.bias, a.state, a.stride, a.tables.slices, a.tables.slots, a.silu};
    check_launch(launch_kernel(kEach[a.taps - 1], grid, kThreads, 0, cuda_launch(executor), params),
                 "starting a convolution");
  }
};

}  // namespace

KernelList<CausalConvOp> CausalConvOp::cuda() {
  static const CudaCausalConv kernel;
  return {&kernel};
}

}  // namespace millrace
