#include "base/rounding.h"
#include "kernels/cuda/device.cuh"
#include "kernels/latent_prompt/cuda/steps.h"
#include "kernels/linear/cuda/file_rows.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {
namespace {

constexpr int kTile = 32, kRowsAtOnce = 8;

struct Params {
  HeadRows keys, values;
  ArrangedHeads out;
};

// A tile of a head's matrix: its rows are elements of the key or of the value. Keys go through shared memory, since
// their file has these elements in columns.
template <class T, class Source>
__device__ void arrange_tile(const Params& p, T (&turned)[kTile][kTile + 2]) {
  const int head = static_cast<int>(blockIdx.z), x = static_cast<int>(threadIdx.x) % kTile,
            y = static_cast<int>(threadIdx.x) / kTile;
  const int column = static_cast<int>(blockIdx.x) * kTile, latent = p.out.latent;
  const int key_tiles = (p.out.plain + kTile - 1) / kTile, tile = static_cast<int>(blockIdx.y);
  const bool is_key = tile < key_tiles;
  const int first = (is_key ? tile : tile - key_tiles) * kTile,
            rows = is_key ? p.out.plain : p.out.head_columns - p.out.plain;
  const HeadRows& source = is_key ? p.keys : p.values;
  const Source* from = static_cast<const Source*>(source.data) + head * source.head_stride;
  T* to = static_cast<T*>(p.out.to) + (int64_t{head} * p.out.head_columns + (is_key ? 0 : p.out.plain)) * latent;
  if (is_key) {
#pragma unroll
    for (int i = y; i < kTile; i += kRowsAtOnce) {
      const int row = column + i, element = first + x;
      if (row < latent && element < rows)
        turned[i][x] = from_float<T>(to_float(from[row * source.row_stride + element]));
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = y; i < kTile; i += kRowsAtOnce) {
    const int element = first + i, at = column + x;
    if (element >= rows || at >= latent) continue;
    T value = from_float<T>(0);
    if (is_key) {
      value = turned[x][i];
    } else if (element < p.out.value) {
      value = from_float<T>(to_float(from[element * source.row_stride + at]));
    }
    to[int64_t{element} * latent + at] = value;
  }
}

template <class T>
__global__ void __launch_bounds__(kTile* kRowsAtOnce) arrange(const __grid_constant__ Params p) {
  __shared__ T turned[kTile][kTile + 2];
  allow_dependents();
  wait_for_predecessors();
  const int key_tiles = (p.out.plain + kTile - 1) / kTile;
  with_device_type(static_cast<int>(blockIdx.y) < key_tiles ? p.keys.dtype : p.values.dtype, [&](auto type) {
    arrange_tile<T, decltype(type)>(p, turned);
    return 0;
  });
}

}  // namespace

HeadRows plain_heads(const GroupedWeights& w, int64_t first, int64_t count, DType type, std::byte* scratch,
                     void* queue) {
  const std::byte* data = w.data[static_cast<size_t>(first)];
  const bool is_rows = w.layout == &cuda_rows_layout();
  if (!is_quantized(w.format)) {
    return {data, w.format, is_rows ? w.k : round_up(w.k, int64_t{8}),
            static_cast<int64_t>(w.stride) / info(w.format).bytes};
  }
  // Matrices without a gap between them are unpacked as one.
  const bool together = w.stride == w.layout->bytes(w.format, w.n, w.k) && w.n % 16 == 0;
  const int64_t each = together ? count : 1;
  for (int64_t i = 0; i < count; i += each) {
    const LinearWeights part{w.format, w.n * each, w.k, w.layout, w.data[static_cast<size_t>(first + i)]};
    std::byte* to = scratch + static_cast<size_t>(i * w.n * w.k) * 2;
    if (is_rows) {
      cuda_write_out(part, type, to, queue);
    } else {
      cuda_unpack(part, to, queue);
    }
  }
  return {scratch, is_rows ? type : DType::BF16, w.k, w.n * w.k};
}

CudaError arrange_heads(const HeadRows& keys, const HeadRows& values, const ArrangedHeads& out,
                        const CudaLaunch& launch) {
  const auto tiles = [](int n) { return static_cast<unsigned>(ceil_div(n, kTile)); };
  const dim3 grid(tiles(out.latent), tiles(out.plain) + tiles(out.head_columns - out.plain),
                  static_cast<unsigned>(out.heads));
  const Params params{keys, values, out};
  const auto kernel = out.dtype == DType::F16 ? arrange<__half> : arrange<__nv_bfloat16>;
  return launch_kernel(kernel, grid, kTile * kRowsAtOnce, 0, launch, params);
}

}  // namespace millrace
