#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/latent_write/latent_write.h"
#include "kernels/rope_write/cuda/row_values.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 128;
constexpr int kMostDim = 1024;  // of a row, which a block holds in registers

struct Params {
  GpuMatrix row, q, absorbed, angles, copy;  // copy: of the queries' plain parts
  int each;                                  // elements that a thread copies; 0: no copy
  const float* norm;
  float epsilon;
  std::byte* keys;
  DType kv;
  int heads, plain, rotary, latent, block_size;
  bool halves;
  const int32_t* row_slots;
  int64_t row_bytes;

  __device__ Rotation rotation() const { return {angles, rotary, halves}; }
};

// Slot and norm are requested before the row's sum is known: one latency instead of three.
__device__ void write_row(const Params& p, int64_t row) {
  constexpr int kEach = kMostDim / kThreads;
  const int dim = p.latent + p.rotary;
  const int64_t slot = p.row_slots[row];  // one KV head: rows of the pool lie in the order of the slots
  float values[kEach], norm[kEach], squares = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e * kThreads + static_cast<int>(threadIdx.x);
    values[e] = norm[e] = 0;
    if (i >= dim) continue;
    const bool turned = i >= p.latent;
    values[e] = turned ? rotated(p.rotation(), p.row, row, p.latent, i - p.latent) : p.row.get(row, i);
    norm[e] = turned ? 0 : p.norm[i];
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (e * kThreads + static_cast<int>(threadIdx.x) < p.latent) squares += values[e] * values[e];
  }
  const float factor = rsqrtf(block_reduce<Add>(squares) / float(p.latent) + p.epsilon);
  std::byte* to = p.keys + slot * p.row_bytes;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e * kThreads + static_cast<int>(threadIdx.x);
    if (i >= dim) break;
    const float x = as_number(i < p.latent ? values[e] * factor * norm[e] : values[e], p.kv);
    if (p.kv == DType::Q8_0) {
      store_q8(to, i, x);  // rows have whole blocks, so a warp is inside as a whole
    } else {
      store(to, p.kv, i, x);
    }
  }
}

// Copies `each` elements of a head's plain part: one, or 16 bytes.
__device__ void copy_plain(const Params& p, int64_t row, int i) {
  const int per_head = p.plain / p.each;
  if (i >= p.heads * per_head) return;
  const int head = i / per_head, at = i % per_head * p.each;
  const int64_t from = row * p.q.stride + int64_t{head} * (p.plain + p.rotary) + at;
  const int64_t to = row * p.copy.stride + int64_t{head} * p.plain + at;
  if (p.each == 1) return store(p.copy.data, p.copy.dtype, to, load(p.q.data, p.q.dtype, from));
  const int64_t bytes = 16 / p.each;
  *reinterpret_cast<uint4*>(p.copy.data + to * bytes) = *reinterpret_cast<const uint4*>(p.q.data + from * bytes);
}

// Grid: (row, 1 + blocks of queries). The first block of a row stores it, the next ones rotate its queries, the last
// ones copy their plain parts.
__global__ void __launch_bounds__(kThreads) write_latent(const __grid_constant__ Params p) {
  wait_for_predecessors();
  allow_dependents();  // not earlier: attention reads rows of earlier steps before it waits
  const int64_t row = blockIdx.x;
  if (blockIdx.y == 0) {
    write_row(p, row);
  } else {
    const int i = static_cast<int>((blockIdx.y - 1) * kThreads + threadIdx.x);
    if (i < p.heads * p.rotary) {
      const int head = i / p.rotary, at = i % p.rotary;
      const float x = rotated(p.rotation(), p.q, row, int64_t(head) * (p.plain + p.rotary) + p.plain, at);
      p.absorbed.set(row, int64_t(head) * (p.latent + p.rotary) + p.latent + at, x);
    }
    const int rotating = (p.heads * p.rotary + kThreads - 1) / kThreads * kThreads;
    if (i >= rotating) copy_plain(p, row, i - rotating);
  }
}

// Elements that a thread copies of a head's plain part.
int elements_of_copy(const LatentWriteOp::Args& a) {
  if (a.plain.cols == 0) return 0;
  const int wide = 16 / static_cast<int>(row_bytes(a.q.dtype, 1));
  const auto fits = [&](const Matrix& m) {
    return m.stride % wide == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.dtype == a.q.dtype;
  };
  const bool heads_fit = a.plain_dim() % wide == 0 && a.rotary_dim() % wide == 0;
  return heads_fit && fits(a.q) && fits(a.plain) ? wide : 1;
}

class CudaLatentWrite final : public Kernel<LatentWriteOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    const int dim = p.latent_dim + p.rotary_dim;
    return is_gpu(hardware) && is_kv_dtype(p.kv, dim) && dim <= kMostDim;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows) * (p.latent_dim + double(p.heads + 1) * p.rotary_dim), hardware, 0.2);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.row.rows == 0) return;
    const int rotary = a.rotary_dim(), each = elements_of_copy(a);
    const Params params{a.row,
                        a.q,
                        a.absorbed,
                        a.angles,
                        a.plain,
                        each,
                        a.norm,
                        a.epsilon,
                        a.kv.keys,
                        a.kv.dtype,
                        a.heads,
                        a.plain_dim(),
                        rotary,
                        a.kv.value_dim,
                        a.kv.block_size,
                        a.style == RopeStyle::Halves,
                        a.tables.row_slots,
                        static_cast<int64_t>(a.kv.key_row_bytes())};
    int of_queries = (a.heads * rotary + kThreads - 1) / kThreads;
    if (each > 0) of_queries += (a.heads * (a.plain_dim() / each) + kThreads - 1) / kThreads;
    const dim3 grid(static_cast<unsigned>(a.row.rows), static_cast<unsigned>(1 + of_queries));
    check_launch(launch_kernel(write_latent, grid, kThreads, 0, cuda_launch(executor), params),
                 "starting latent_write");
  }
};

}  // namespace

KernelList<LatentWriteOp> LatentWriteOp::cuda() {
  static const CudaLatentWrite kernel;
  return {&kernel};
}

}  // namespace millrace
