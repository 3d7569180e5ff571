// silu(gate) * up behind a matrix product that has no epilogue for it. A prompt's gates and ups are far larger than the
// cache, so this runs at the speed of memory: several loads of each thread are on their way at a time.
#include "kernels/cuda/device.cuh"
#include "kernels/linear/cuda_rows.h"

namespace millrace {
namespace {

constexpr int kGroup = 8;  // sixteen bytes of gate, then sixteen of up
constexpr int kThreads = 128;
constexpr int kEach = 4;  // groups of a thread

template <class T>
__device__ uint4 gated(const uint4& gates, const uint4& ups) {
  const auto& gate = reinterpret_cast<const Vector<T, kGroup>&>(gates);
  const auto& up = reinterpret_cast<const Vector<T, kGroup>&>(ups);
  Vector<T, kGroup> product;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float x = to_float(gate.at[i]);
    product.at[i] = from_float<T>(__fdividef(x, 1 + __expf(-x)) * to_float(up.at[i]));
  }
  return reinterpret_cast<const uint4&>(product);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gate(const uint4* __restrict__ gate_up, uint4* __restrict__ out, int groups,
                                                 int64_t stride) {
  const int64_t row = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x) * kThreads * kEach + static_cast<int>(threadIdx.x);
  const uint4* from = gate_up + row * groups * 2;
  uint4 gates[kEach], ups[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = min(first + i * kThreads, groups - 1);
    gates[i] = __ldcs(from + group * 2);
    ups[i] = __ldcs(from + group * 2 + 1);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = first + i * kThreads;
    if (group < groups) out[row * stride + group] = gated<T>(gates[i], ups[i]);
  }
}

}  // namespace

void cuda_gate(const void* gate_up, const Matrix& out, void* queue) {
  const int groups = static_cast<int>(out.cols / kGroup);
  const dim3 grid(static_cast<unsigned>((groups + kThreads * kEach - 1) / (kThreads * kEach)),
                  static_cast<unsigned>(out.rows));
  const auto launch = [&](auto kernel) {
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(static_cast<const uint4*>(gate_up),
                                                                    reinterpret_cast<uint4*>(out.data), groups,
                                                                    out.stride / kGroup);
  };
  launch(out.dtype == DType::BF16 ? gate<__nv_bfloat16> : gate<__half>);
}

}  // namespace millrace
