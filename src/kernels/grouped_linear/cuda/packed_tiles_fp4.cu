#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

namespace millrace {

MILLRACE_GROUPED_TILES(, MXFP4)

}  // namespace millrace
