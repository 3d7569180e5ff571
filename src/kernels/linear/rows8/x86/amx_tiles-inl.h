// The tile registers of the AMX kernels. Included inside a target region.
#pragma once

#include "hardware/amx-inl.h"
#include "kernels/linear/rows8/x86/block_sums-inl.h"

class Tiles {  // configures the tile registers during its lifetime
 public:
  Tiles() { load_tile_config(); }
  ~Tiles() { release_tiles(); }
  Tiles(const Tiles&) = delete;
};

// Stores registers 0 to 3: 32 rows of x (16 without `second`) by 32 rows of weights.
template <bool second, class Number>
MR_INLINE inline void store_tiles(Number (&rows)[32][32]) {
  _tile_stored(0, rows[0], sizeof rows[0]);
  _tile_stored(1, rows[0] + 16, sizeof rows[0]);
  if constexpr (second) {
    _tile_stored(2, rows[16], sizeof rows[0]);
    _tile_stored(3, rows[16] + 16, sizeof rows[0]);
  }
}
