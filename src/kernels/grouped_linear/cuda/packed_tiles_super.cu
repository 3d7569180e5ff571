#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

namespace millrace {

MILLRACE_GROUPED_TILES(, Q4_K)
MILLRACE_GROUPED_TILES(, Q5_K)
MILLRACE_GROUPED_TILES(, Q6_K)

}  // namespace millrace
