#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

namespace millrace {

MILLRACE_GROUPED_TILES(, Q4_0)
MILLRACE_GROUPED_TILES(, Q4_1)
MILLRACE_GROUPED_TILES(, Q8_0)

}  // namespace millrace
