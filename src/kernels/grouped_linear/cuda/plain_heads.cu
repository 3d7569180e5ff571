// 16-bit weights of attention heads for decodes: row r of a batch has a row of x for each head, and head h multiplies
// it with its own matrix. No routing is read. The weights are requested before the preceding kernels end, and so is x
// where GroupedLinearArgs::early_x has it.
//
// A warp multiplies 16 outputs by 64 columns, and the warps of a block share its outputs and all columns. Operands come
// from memory straight into the registers of the products: lane 4 g + t takes columns 16 t .. 16 t + 15 of its part of
// weights and of x alike, so a product pairs the same columns, if not in the order that the instruction names.
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 64, kOutputs = 16;  // columns and outputs of a warp
constexpr int kMostRows = 256;

// Sixteen elements of a row: two for each of four products, then two more.
struct Sixteen {
  uint4 v[2];
  __device__ uint32_t word(int i) const {
    const uint4& four = v[i / 4];
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }
};

struct HeadInputs {
  const std::byte* x;
  int64_t of_row, of_head;  // elements from a row of the batch to the next, from a head to the next
  bool early;
};

HeadInputs inputs_of(const GroupedLinearArgs& a) {
  const int64_t heads = a.weights->groups;
  const Matrix& early = a.early_x;
  if (early.cols > 0 && reinterpret_cast<uintptr_t>(early.data) % 16 == 0 && early.stride % 8 == 0 &&
      early.cols / heads % 8 == 0)
    return {early.data, early.stride, early.cols / heads, true};
  return {a.x.data, a.x.stride * heads, a.x.stride, false};
}

// Loads 16 bytes past the first-level cache, which may hold what kernels left there that this one does not wait for;
// zeros if not `live`.
__device__ __forceinline__ uint4 load_early_if(const void* p, bool live) {
  uint4 v;
  asm volatile(
      "{\n.reg .pred live;\nsetp.ne.b32 live, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@live ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(live))
      : "memory");
  return v;
}

// Grid: (outputs, head, rows). kTiles: a block has eight times as many rows of the batch.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 8 ? 1 : 2)
    multiply_heads(const __grid_constant__ GroupedParams p, int64_t stride, HeadInputs in, int rows) {
  extern __shared__ __align__(16) float sums[];  // [part of the columns][row][outputs of the block + 4]
  let_next_kernel_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int parts = p.k / kColumns, bands = kWarps / parts, part = warp % parts, band = warp / parts;
  const int head = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * bands * kOutputs;
  const int first_row = static_cast<int>(blockIdx.z) * 8 * kTiles, padded = bands * kOutputs + 4;
  const int column = part * kColumns + lane % 4 * 16;
  const T* matrix = reinterpret_cast<const T*>(p.matrix(head));
  Sixteen weights[2];  // of outputs lane / 4 and lane / 4 + 8; those beyond the matrix repeat its last one
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = min(first + band * kOutputs + half * 8 + lane / 4, p.n - 1);
#pragma unroll
    for (int i = 0; i < 2; ++i) weights[half].v[i] = load_stream(matrix + output * stride + column + i * 8);
  }
  if (!in.early) wait_for_previous_kernel();
  if (band < bands) {
    const T* x = reinterpret_cast<const T*>(in.x) + head * in.of_head + column;
    Sixteen inputs[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = first_row + tile * 8 + lane / 4;
      const bool live = row < rows;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* from = x + (live ? row : 0) * in.of_row + i * 8;
        inputs[tile].v[i] = in.early ? load_early_if(from, live) : load_shared_input_if(from, live);
      }
    }
    float* to = sums + part * 8 * kTiles * padded + band * kOutputs + lane / 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float d[4] = {};
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        mma<T>(d, weights[0].word(i), weights[1].word(i), weights[0].word(i + 1), weights[1].word(i + 1),
               inputs[tile].word(i), inputs[tile].word(i + 1));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) to[(tile * 8 + lane % 4 * 2 + i % 2) * padded + i / 2 * 8] = d[i];
    }
  }
  if (in.early) wait_for_previous_kernel();
  __syncthreads();
  const int shift = 4 + 31 - __clz(bands), live = min(8 * kTiles, rows - first_row);  // 16 * bands is a power of two
  for (int i = static_cast<int>(threadIdx.x); i < live << shift; i += kThreads) {
    const int row = i >> shift, output = i & ((1 << shift) - 1);
    if (first + output >= p.n) continue;
    float sum = p.bias != nullptr ? p.bias[head * p.n + first + output] : 0;
    for (int other = 0; other < parts; ++other) sum += sums[(other * 8 * kTiles + row) * padded + output];
    p.y.set(static_cast<int64_t>(first_row + row) * p.groups + head, first + output, sum);
  }
}

int bands_of(int64_t k) { return static_cast<int>(kWarps / (k / kColumns)); }

class PlainHeads final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_heads"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.by_head && is_plain_grouped(p) && !p.gated && !p.sum && p.per_row == 1 &&
           p.k % kColumns == 0 && p.k <= kWarps * kColumns && p.groups <= 65535 && p.rows >= p.groups &&
           p.rows <= kMostRows * p.groups && !p.invariant;
  }
  // x comes from the cache, once for each block.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double weights = 2.0 * double(p.groups) * double(p.n) * double(p.k);
    const double blocks = std::ceil(double(p.n) / (bands_of(p.k) * kOutputs));
    const double x = 2.0 * double(p.rows) * double(p.k) * blocks;
    return 0.9 * hardware.ceilings.region_us + (weights / (0.8 * hardware.ceilings.read_gbs) + x / 4000) * 1e-3;
  }
  void run(const Args& a, const Executor& executor) const override {
    check_cuda(a.weights->format == DType::BF16 ? start<__nv_bfloat16>(a, executor) : start<__half>(a, executor),
               "starting a linear layer of heads");
  }

 private:
  template <class T>
  static cudaError_t start(const Args& a, const Executor& executor) {
    const int64_t rows = a.routing.rows / a.weights->groups;
    if (rows <= 8) return start<T, 1>(a, executor, rows);
    if (rows <= 16) return start<T, 2>(a, executor, rows);
    return rows <= 32 ? start<T, 4>(a, executor, rows) : start<T, 8>(a, executor, rows);
  }
  template <class T, int kTiles>
  static cudaError_t start(const Args& a, const Executor& executor, int64_t rows) {
    if (rows == 0) return cudaSuccess;
    const GroupedParams params = grouped_params(a);
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const int outputs = bands_of(params.k) * kOutputs;
    LaunchShape shape;
    shape.threads = kThreads;
    shape.grid = dim3(static_cast<unsigned>(ceil_div(params.n, outputs)), static_cast<unsigned>(params.groups),
                      static_cast<unsigned>(ceil_div(rows, int64_t{8} * kTiles)));
    shape.shared_bytes =
        static_cast<size_t>(params.k / kColumns) * 8 * kTiles * static_cast<size_t>(outputs + 4) * sizeof(float);
    shape.most_shared = true;  // attention runs before one of these layers and behind the other
    return launch_kernel(multiply_heads<T, kTiles>, shape, step, params, packed_linear_stride(params.k), inputs_of(a),
                         static_cast<int>(rows));
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_heads() {
  static const PlainHeads kernel;
  return &kernel;
}

}  // namespace millrace
