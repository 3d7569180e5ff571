// The steps before the products of materialised latent attention: weights and latent rows in the form that they take.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/grouped_linear/grouped_linear.h"

namespace millrace {

// Latent rows of positions [begin, begin + rows), zeros from `end` on.
struct GatheredLatents {
  void* to = nullptr;  // [rows][kv.key_dim]: BF16 if the cache is, else F16
  int begin = 0, end = 0, rows = 0;
};
// The sequence's pages are the first of `tables`.
CudaError gather_latents(const KvLayer& kv, const SliceTables& tables, const GatheredLatents& piece,
                         const CudaLaunch& launch);

// Matrices of some heads as plain numbers, wherever they lie.
struct HeadRows {
  const void* data = nullptr;
  DType dtype = DType::F32;                 // F32, F16 or BF16
  int64_t row_stride = 0, head_stride = 0;  // elements
};
// The matrices of heads [first, first + count); quantized ones are written to `scratch`, 2 * count * n * k bytes.
HeadRows plain_heads(const GroupedWeights& weights, int64_t first, int64_t count, DType type, std::byte* scratch,
                     void* queue);

struct ArrangedHeads {
  // [heads][head_columns][latent]: rows for the elements of the key, then of the value, then zeros.
  void* to = nullptr;
  DType dtype = DType::BF16;  // BF16 or F16
  int heads = 0, plain = 0, value = 0, latent = 0, head_columns = 0;
};
// keys: [latent, plain] of each head, values: [value, latent].
CudaError arrange_heads(const HeadRows& keys, const HeadRows& values, const ArrangedHeads& out,
                        const CudaLaunch& launch);

}  // namespace millrace
