// CPU kernels whose work can be cut into pieces, for callers that schedule pieces of many matrices at once: the experts
// of a mixture.
#pragma once

#include <span>

#include "kernels/linear/linear.h"

namespace millrace {

inline constexpr int64_t kStripRows = 8;  // rows of weights per strip

// Unit of work of one worker: a range of strips of weights by a range of rows of x.
struct LinearPiece {
  int64_t strip_begin = 0, strip_end = 0;
  int64_t m_begin = 0, m_end = 0;
  int64_t strip_after = 0;  // strip that this worker probably takes next, for prefetching
};

inline constexpr int64_t kMostPanels = 4;  // per piece

// How a kernel's work may be cut.
struct PieceLimits {
  int64_t tile_rows = 1;         // pieces begin at multiples of this row of x
  int64_t prepared_rows = 1;     // rows per call of prepare(), except the last
  int64_t most_rows = 512;       // of x per piece, rounded up to whole tiles
  int64_t strips_per_panel = 0;  // strips that are unpacked together; 0: any number of strips
  bool any_rows = true;          // any number of rows; with LinearArgs::invariant they do not affect each other
  size_t scratch_bytes = 0;      // per worker
};

class PieceKernel : public LinearKernel {
 public:
  virtual PieceLimits limits() const = 0;
  // Bytes of prepared x; m rows take no more than whole tiles would.
  virtual size_t x_bytes(int64_t m, int64_t k) const = 0;
  // Converts rows of args.x to the form that multiply() reads, at their place in `x`, which is 64-byte aligned.
  virtual void prepare(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) const = 0;
  // Computes a piece of y on the calling thread. Reads x instead of args.x, whose number of rows must be that of
  // prepare().
  virtual void multiply(const LinearArgs& args, const std::byte* x, std::byte* scratch,
                        const LinearPiece& piece) const = 0;
};

std::span<const PieceKernel* const> piece_kernels();  // best first where estimates tie

}  // namespace millrace
