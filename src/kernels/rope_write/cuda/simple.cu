#include <cuda_fp8.h>

#include "kernels/cuda/cost.h"
#include "kernels/cuda/values.cuh"
#include "kernels/rope_write/cuda/row_values.cuh"
#include "kernels/rope_write/rope_write.h"

namespace millrace {

const Kernel<RopeWriteOp>* cuda_rope_write();  // rope_write.cpp

namespace {

struct Params {
  GpuMatrix q, k, v, angles;
  std::byte *keys, *values;
  DType kv;
  int heads, kv_heads, head_dim, rotary_dim, block_size;
  bool halves;
  const int32_t* row_slots;
  int64_t row_bytes;
};

// Element i of a head after RoPE.
__device__ float element(const Params& p, const GpuMatrix& x, int64_t row, int64_t first, int i) {
  return i < p.rotary_dim ? rotated({p.angles, p.rotary_dim, p.halves}, x, row, first, i) : x.get(row, first + i);
}

// One block per head of q, k and v, with one thread per element, rounded up to whole warps.
__global__ void rope_write(Params p) {
  const int64_t row = blockIdx.x;
  const int head = blockIdx.y, i = threadIdx.x;
  const bool inside = i < p.head_dim;
  if (head < p.heads) {
    const int64_t first = int64_t(head) * p.head_dim;
    const float x = inside ? element(p, p.q, row, first, i) : 0;
    __syncthreads();  // both elements of a pair are read before either is written
    if (inside && i < p.rotary_dim) p.q.set(row, first + i, x);
    return;
  }
  const bool is_key = head < p.heads + p.kv_heads;
  const int kv_head = (head - p.heads) % p.kv_heads;
  const int64_t first = int64_t(kv_head) * p.head_dim;
  const float x = !inside ? 0 : as_number(is_key ? element(p, p.k, row, first, i) : p.v.get(row, first + i), p.kv);
  const int64_t slot = p.row_slots[row], page = slot / p.block_size;
  const int64_t at = (page * p.kv_heads + kv_head) * p.block_size + slot % p.block_size;
  std::byte* to = (is_key ? p.keys : p.values) + at * p.row_bytes;
  if (p.kv == DType::Q8_0) {
    if (inside) store_q8(to, i, x);  // a head has whole blocks, so a warp is inside as a whole
  } else if (p.kv == kFp8) {
    if (inside) to[i] = static_cast<std::byte>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
  } else if (inside) {
    store(to, p.kv, i, x);
  }
}

class CudaRopeWrite final : public Kernel<RopeWriteOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.one_head_size() && is_kv_dtype(p.kv, p.key_dim) && p.key_dim <= 1024;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(8.0 * double(p.rows) * (p.heads + p.kv_heads) * p.key_dim, hardware, 0.1);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.k.rows == 0) return;
    const Params params{a.q,
                        a.k,
                        a.v,
                        a.angles,
                        a.kv.keys,
                        a.kv.values,
                        a.kv.dtype,
                        a.heads,
                        a.kv.kv_heads,
                        a.kv.key_dim,
                        static_cast<int>(a.angles.cols),
                        a.kv.block_size,
                        a.style == RopeStyle::Halves,
                        a.tables.row_slots,
                        static_cast<int64_t>(a.kv.key_row_bytes())};
    const dim3 grid(static_cast<unsigned>(a.k.rows), static_cast<unsigned>(a.heads + 2 * a.kv.kv_heads));
    rope_write<<<grid, (a.kv.key_dim + 31) / 32 * 32, 0, static_cast<cudaStream_t>(executor.queue)>>>(params);
  }
};

}  // namespace

KernelList<RopeWriteOp> RopeWriteOp::cuda() {
  static const CudaRopeWrite kernel;
  return {cuda_rope_write(), &kernel};
}

}  // namespace millrace
