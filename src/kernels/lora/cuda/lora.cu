#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/lora/lora.h"

namespace millrace {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kDots = 4;      // rows of A of one warp at a time
constexpr int kColumns = 4;   // of y, of one thread
constexpr int kManyRows = 8;  // rows of a block in a prompt: those of one adapter share its weights

struct Params {
  const LoraWeights* table;
  const int32_t *adapters, *ids, *chosen;
  GpuMatrix x, y;
  float* inner;  // [rows][stride]
  int64_t stride, rows, k;
  float scale;
  bool wide;  // rows of x and A are multiples of 16 bytes
};

template <int N>
struct Width {
  static constexpr int kValue = N;
};

// The column of a part's B that adds to column c of y; -1: another part's.
__device__ int column_in(const LoraWeights::Part& part, int c) {
  const int at = c - part.column;
  if (part.group == 0) return at >= 0 && at < part.cols ? at : -1;
  const int in_pair = at % (2 * part.group), own = at / (2 * part.group) * part.group + in_pair;
  return at >= 0 && in_pair < part.group && own < part.cols ? own : -1;
}

// The adapter's matrices of a row, or null. Rows past the end have none.
__device__ const LoraWeights* weights_of(const Params& p, int64_t row) {
  const int adapter = row < p.rows ? p.adapters[row] : -1;
  const LoraWeights* w = adapter >= 0 ? p.table + adapter : nullptr;
  return w != nullptr && w->a != nullptr ? w : nullptr;
}

// Calls visit(first row, rows, weights) for each run of rows with the same matrices.
template <int R, class Visit>
__device__ void for_runs(const Params& p, int64_t first, Visit visit) {
  for (int begin = 0; begin < R;) {
    const LoraWeights* w = weights_of(p, first + begin);
    int end = begin + 1;
    while (end < R && weights_of(p, first + end) == w) ++end;
    if (w != nullptr) visit(first + begin, end - begin, *w);
    begin = end;
  }
}

// inner[row] = A x[row]. A warp computes kDots rows of A for R rows of x; each dot product is one warp's, in one order.
template <class T, int R>
__global__ void __launch_bounds__(kThreads) shrink(const __grid_constant__ Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_dot = (static_cast<int>(blockIdx.y) * kWarps + warp) * kDots;
  constexpr int kEach = 16 / sizeof(T);
  for_runs<R>(p, int64_t{blockIdx.x} * R, [&](int64_t row, int count, const LoraWeights& w) {
    const T* a = reinterpret_cast<const T*>(w.a);
    const T* x = reinterpret_cast<const T*>(p.x.data);
    for (int j = first_dot; j < w.rank; j += static_cast<int>(gridDim.y) * kWarps * kDots) {
      float sums[R][kDots] = {};
      const auto add = [&](int64_t column, auto width) {
        constexpr int kWidth = decltype(width)::kValue;
        using Few = Vector<T, kWidth>;
        Few as[kDots];
#pragma unroll
        for (int d = 0; d < kDots; ++d) {
          const int at = min(j + d, w.rank - 1);
          as[d] = *reinterpret_cast<const Few*>(a + at * p.k + column);
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (r >= count) break;
          const Few xs = *reinterpret_cast<const Few*>(x + (row + r) * p.x.stride + column);
#pragma unroll
          for (int d = 0; d < kDots; ++d) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) sums[r][d] += to_float(xs.at[i]) * to_float(as[d].at[i]);
          }
        }
      };
      if (p.wide) {
        for (int64_t c = lane * kEach; c < p.k; c += 32 * kEach) add(c, Width<kEach>());
      } else {
        for (int64_t c = lane; c < p.k; c += 32) add(c, Width<1>());
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (r >= count) break;
#pragma unroll
        for (int d = 0; d < kDots; ++d) {
          const float sum = warp_sum(sums[r][d]);
          if (lane == 0 && j + d < w.rank) p.inner[(row + r) * p.stride + j + d] = sum;
        }
      }
    }
  });
}

// y[row] += scale * B inner[row]. Grid: (columns, rows).
template <class T, int R>
__global__ void __launch_bounds__(kThreads) expand(const __grid_constant__ Params p) {
  extern __shared__ float inner[];  // [R][stride]
  allow_dependents();
  wait_for_predecessors();
  const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kColumns;
  for_runs<R>(p, int64_t{blockIdx.y} * R, [&](int64_t row, int count, const LoraWeights& w) {
    __syncthreads();  // the previous run's values may still be in use
    for (int r = 0; r < count; ++r) {
      int64_t id = p.ids != nullptr ? p.ids[row + r] : 0;
      if (id < 0) id = max(0, p.chosen[~id]);  // -1: the sequence ended
      for (int j = static_cast<int>(threadIdx.x); j < w.rank; j += kThreads) {
        inner[r * p.stride + j] = p.ids != nullptr ? to_float(reinterpret_cast<const T*>(w.a)[id * w.rank + j])
                                                   : p.inner[(row + r) * p.stride + j];
      }
    }
    __syncthreads();
    for (int i = 0; i < w.parts; ++i) {
      const LoraWeights::Part part = w.part[i];
      const T* b = reinterpret_cast<const T*>(w.b) + part.at;  // [part.rank][part.cols]
      int own[kColumns];
      bool any = false;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) any |= (own[c] = column_in(part, column + c)) >= 0;
      if (!any) continue;
      float sums[R][kColumns] = {};
      const bool whole = own[0] >= 0 && own[kColumns - 1] == own[0] + kColumns - 1 && own[0] % kColumns == 0 &&
                         part.cols % kColumns == 0 && part.at % kColumns == 0;
      for (int j = 0; j < part.rank; ++j) {
        float bs[kColumns];
        if (whole) {
          const auto few = *reinterpret_cast<const Vector<T, kColumns>*>(b + int64_t{j} * part.cols + own[0]);
#pragma unroll
          for (int c = 0; c < kColumns; ++c) bs[c] = to_float(few.at[c]);
        } else {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            bs[c] = own[c] >= 0 ? to_float(b[int64_t{j} * part.cols + own[c]]) : 0;
          }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (r >= count) break;
          const float t = inner[r * p.stride + part.first + j];
#pragma unroll
          for (int c = 0; c < kColumns; ++c) sums[r][c] += t * bs[c];
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (r >= count) break;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (own[c] >= 0) p.y.set(row + r, column + c, p.y.get(row + r, column + c) + p.scale * sums[r][c]);
        }
      }
    }
  });
}

template <class T, int R>
void launch(const Params& params, const Executor& executor) {
  const auto blocks = static_cast<unsigned>((params.rows + R - 1) / R);
  if (params.ids == nullptr) {
    // A warp loops over what the grid leaves: 128 rows of A are covered at once, without idle blocks at usual ranks.
    constexpr unsigned kBlocksOfDots = 4;
    check_launch(launch_kernel(shrink<T, R>, dim3(blocks, kBlocksOfDots), kThreads, 0, cuda_launch(executor), params),
                 "starting lora");
  }
  const dim3 grid(static_cast<unsigned>((params.y.cols + kThreads * kColumns - 1) / (kThreads * kColumns)), blocks);
  const size_t shared = static_cast<size_t>(R * params.stride) * sizeof(float);
  check_launch(launch_kernel(expand<T, R>, grid, kThreads, shared, cuda_launch(executor), params), "starting lora");
}

class CudaLora final : public Kernel<LoraOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return 2 * gpu_us(double(p.rows * (p.n + p.k)) * 16, hardware);  // of rank 16
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return static_cast<size_t>(p.rows * p.most_rank()) * sizeof(float);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.y.rows == 0) return;
    const int64_t each = 16 / info(a.format).bytes;
    const bool wide = a.x.cols % each == 0 && a.x.stride % each == 0 && reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0;
    const Params params{.table = a.table,
                        .adapters = a.adapters,
                        .ids = a.x.cols == 0 ? a.ids.data() : nullptr,
                        .chosen = a.chosen,
                        .x = a.x,
                        .y = a.y,
                        .inner = reinterpret_cast<float*>(executor.workspace),
                        .stride = a.parts * LoraWeights::kMostRank,
                        .rows = a.y.rows,
                        .k = a.x.cols,
                        .scale = a.scale,
                        .wide = wide};
    with_type(a.format, [&](auto type) {
      // Decodes mix adapters; prompts have runs of rows of one adapter. Both sum in the same order.
      a.y.rows <= 64 ? launch<decltype(type), 1>(params, executor)
                     : launch<decltype(type), kManyRows>(params, executor);
    });
  }
};

}  // namespace

KernelList<LoraOp> LoraOp::cuda() {
  static const CudaLora kernel;
  return {&kernel};
}

}  // namespace millrace
