#include "kernels/cuda/cost.h"
#include "kernels/rope/angles.h"

namespace millrace {
namespace {

struct Params {
  const int32_t *positions, *horizons;
  RopeAnglesOp::Args::Frequencies usual, extended;
  int64_t long_from, stride;
  float* angles;
  int half;
};

__global__ void rope_angles(Params p) {
  const int64_t row = blockIdx.x;
  const bool is_long = p.long_from > 0 && p.horizons[row] > p.long_from;
  const auto& frequencies = is_long ? p.extended : p.usual;
  for (int i = threadIdx.x; i < p.half; i += blockDim.x) {
    const float angle = float(p.positions[row]) * frequencies.inverse[i];
    float* out = p.angles + row * p.stride + i;
    out[0] = cosf(angle) * frequencies.magnitude;
    out[p.half] = sinf(angle) * frequencies.magnitude;
  }
}

class CudaRopeAngles final : public Kernel<RopeAnglesOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows * p.rotary_dim), hardware, 0.1);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.angles.rows == 0) return;
    const Params params{a.positions.data(),
                        a.horizons.data(),
                        a.usual,
                        a.extended,
                        a.long_from,
                        a.angles.stride,
                        a.angles.row<float>(0),
                        static_cast<int>(a.angles.cols / 2)};
    rope_angles<<<static_cast<unsigned>(a.angles.rows), 64, 0, static_cast<cudaStream_t>(executor.queue)>>>(params);
  }
};

}  // namespace

KernelList<RopeAnglesOp> RopeAnglesOp::cuda() {
  static const CudaRopeAngles kernel;
  return {&kernel};
}

}  // namespace millrace
