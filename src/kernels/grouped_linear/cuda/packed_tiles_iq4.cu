#include "kernels/grouped_linear/cuda/packed_tiles.cuh"

namespace millrace {

MILLRACE_GROUPED_TILES(, IQ4_NL)
MILLRACE_GROUPED_TILES(, IQ4_XS)

}  // namespace millrace
