#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

namespace millrace {

MILLRACE_GROUPED_TILES(, Q5_0)
MILLRACE_GROUPED_TILES(, Q5_1)

}  // namespace millrace
