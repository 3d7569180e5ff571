// Which tile of 16 rows of quantized weights a warp multiplies.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"

namespace millrace {

// Tile `index` of the kTiles in block `rows` of a group's matrix. In a gated layer the first half are tiles of gate,
// the others the same tiles of up. Tiles beyond the matrix repeat its last one; their products are dropped.
template <int kTiles>
__device__ __forceinline__ int unit_tile(const GroupedParams& p, int rows, int index) {
  if (p.half == 0) return min(rows * kTiles + index, (p.n - 1) / kUnitRows);
  const int tiles = p.half / kUnitRows, half = kTiles / 2;
  return min(rows * half + index % half, tiles - 1) + (index < half ? 0 : tiles);
}

}  // namespace millrace
