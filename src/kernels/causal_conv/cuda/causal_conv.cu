#include "hardware/cuda_device.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 32;   // of a block, at least kMostTaps
constexpr int kAhead = 4;   // rows that are on their way while as many are computed; divides kRows
constexpr int kVector = 4;  // channels of a thread where the addresses allow it, of up to 4 taps

struct Params {
  GpuMatrix x, out;
  const float *weight, *bias;
  std::byte* state;
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  bool silu;
};

// The output is rounded to 16 bits, which hides the errors of the fast functions.
template <class T>
__device__ float silu(float x) {
  return sizeof(T) == 4 ? x / (1 + expf(-x)) : __fdividef(x, 1 + __expf(-x));
}

// By one instruction, which the compiler does not find for four numbers of 16 bits.
template <class T, int kCount>
__device__ void store_row(T* to, const Vector<float, kCount>& x) {
  if constexpr (sizeof(T) == 2 && kCount == 4) {
    const auto in_range = [](float f) { return std::is_same_v<T, __half> ? within_half(f) : f; };
    __stwb(reinterpret_cast<uint2*>(to),
           uint2{pack<T>(in_range(x.at[0]), in_range(x.at[1])), pack<T>(in_range(x.at[2]), in_range(x.at[3]))});
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from_float<T>(x.at[i]);
  }
}

// One thread per kChannels channels, one block per kRows rows of a sequence. Only the first block of a sequence reads
// its state, so that block also writes the new state; the rows of x that it keeps are inputs and do not change.
template <int taps, class T, int kChannels>
__global__ void __launch_bounds__(kThreads) causal_conv(const __grid_constant__ Params p) {
  constexpr int kKept = taps - 1;
  using Inputs = Vector<T, kChannels>;
  using Floats = Vector<float, kChannels>;
  allow_dependents();
  const int64_t c = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kChannels;
  const bool inside = c < p.x.cols;
  float weight[kChannels][taps], bias[kChannels] = {};
  if (inside) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
#pragma unroll
      for (int j = 0; j < taps; ++j) weight[i][j] = p.weight[(c + i) * taps + j];
      if (p.bias != nullptr) bias[i] = p.bias[c + i];
    }
  }
  wait_for_predecessors();
  const SliceTables::Slice slice = p.slices[blockIdx.z];
  const int begin = static_cast<int>(blockIdx.y) * kRows, end = min(begin + kRows, slice.rows);
  if (!inside || begin >= slice.rows) return;
  auto* state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[blockIdx.z]) * p.stride) + c;
  const T* x = reinterpret_cast<const T*>(p.x.data) + slice.first_row * p.x.stride + c;
  T* out = reinterpret_cast<T*>(p.out.data) + slice.first_row * p.out.stride + c;
  const auto raw = [&](int t) { return *reinterpret_cast<const Inputs*>(x + t * p.x.stride); };
  const auto widened = [](const Inputs& inputs) {
    Floats floats;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) floats.at[i] = to_float(inputs.at[i]);
    return floats;
  };
  const auto input = [&](int t) {
    return t < 0 ? *reinterpret_cast<const Floats*>(state + (kKept + t) * p.x.cols) : widened(raw(t));
  };
  Inputs next[kAhead];
  const auto request = [&](int first) {
#pragma unroll
    for (int r = 0; r < kAhead; ++r) next[r] = raw(min(first + r, slice.rows - 1));
  };
  request(begin);
  Floats window[kKept + kAhead];
#pragma unroll
  for (int j = 0; j < kKept; ++j) window[j] = input(begin - kKept + j);
  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int r = 0; r < kAhead; ++r) window[kKept + r] = widened(next[r]);
    request(first + kAhead);
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      if (first + r >= end) break;
      Floats result;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        float sum = bias[i];
#pragma unroll
        for (int j = 0; j < taps; ++j) sum = fmaf(weight[i][j], window[r + j].at[i], sum);
        result.at[i] = p.silu ? silu<T>(sum) : sum;
      }
      store_row(out + (first + r) * p.out.stride, result);
    }
#pragma unroll
    for (int j = 0; j < kKept; ++j) window[j] = window[j + kAhead];
  }
  if (begin > 0) return;
    // Oldest first: a place is read before it is overwritten.
#pragma unroll
  for (int i = 0; i < kKept; ++i) *reinterpret_cast<Floats*>(state + i * p.x.cols) = input(slice.rows - kKept + i);
}

using Convolution = void (*)(Params);

template <class T>
Convolution convolution_of(int taps, bool vector) {
  constexpr Convolution kByVectors[] = {causal_conv<1, T, kVector>, causal_conv<2, T, kVector>,
                                        causal_conv<3, T, kVector>, causal_conv<4, T, kVector>};
  constexpr Convolution kEach[] = {causal_conv<1, T, 1>, causal_conv<2, T, 1>, causal_conv<3, T, 1>,
                                   causal_conv<4, T, 1>, causal_conv<5, T, 1>, causal_conv<6, T, 1>,
                                   causal_conv<7, T, 1>, causal_conv<8, T, 1>};
  return vector ? kByVectors[taps - 1] : kEach[taps - 1];
}

// Whether kVector channels of every row can be read and written by one instruction.
bool takes_vectors(const CausalConvOp::Args& a) {
  const auto fits = [](const Matrix& m) {
    const auto bytes = static_cast<uintptr_t>(row_bytes(m.dtype, kVector));
    return m.stride % kVector == 0 && reinterpret_cast<uintptr_t>(m.data) % bytes == 0;
  };
  return a.taps <= 4 && a.x.cols % kVector == 0 && fits(a.x) && fits(a.out) && a.stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.state) % 16 == 0;
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
    const bool vectors = takes_vectors(a);
    const Convolution kernel =
        with_type(a.x.dtype, [&](auto type) { return convolution_of<decltype(type)>(a.taps, vectors); });
    const int64_t channels = kThreads * (vectors ? kVector : 1);
    const dim3 grid(static_cast<unsigned>((a.x.cols + channels - 1) / channels),
                    static_cast<unsigned>((a.tables.longest_slice + kRows - 1) / kRows),
                    static_cast<unsigned>(a.sequences.size()));
    const Params params{a.x, a.out, a.weight, a.bias, a.state, a.stride, a.tables.slices, a.tables.slots, a.silu};
    check_launch(launch_kernel(kernel, grid, kThreads, 0, cuda_launch(executor), params), "starting a convolution");
  }
};

}  // namespace

KernelList<CausalConvOp> CausalConvOp::cuda() {
  static const CudaCausalConv kernel;
  return {&kernel};
}

}  // namespace millrace
