// The part of the rows8 kernels that does not depend on the instruction set: quantization of x, work split, estimates.
// Strips of eight rows of weights are packed (rows8 layout) or plain rows in place.
//
// An instruction set contributes a Rows8Method: plain functions and a few numbers. Only those functions are compiled
// for the instruction set; the code here also runs on machines without it.
#pragma once

#include <optional>

#include "kernels/linear/pieces.h"

namespace millrace {

using Rows8Piece = LinearPiece;

struct Rows8Method {
  std::string_view name;
  Isa isa;
  int64_t min_m = 1, max_m = INT64_MAX;
  bool plain_rows = false;  // also reads BF16 rows in place

  // x is quantized to int8 in independent tiles of rows.
  int64_t tile_rows = 1;
  int64_t quantized_rows = 0;  // rows per call of quantize(); 0: one tile
  size_t (*x_bytes)(int64_t m, int64_t k) = nullptr;
  void (*quantize)(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) = nullptr;

  size_t scratch_bytes = 0;      // per worker
  int64_t strips_per_panel = 0;  // strips that are unpacked together and used for many rows; 0: no panels
  void (*multiply)(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) = nullptr;

  // Parameters of the estimate. compute_share and memory_share are fractions of the instruction set's int8 peak and of
  // the read bandwidth. Unpacking costs as much as multiplying with unpack_rows + unpack_effort_rows * (effort of the
  // format) rows.
  double compute_share = 0.5, memory_share = 0.9;
  std::optional<Isa> outgrown_with;  // cores that also have this instruction set reach less bandwidth with this method
  double beside_faster = 1;          // factor on compute_share on machines that have a faster instruction set
  double unpack_rows = 0, unpack_effort_rows = 0;
  double scale_effort = 0;     // cost per row of x of each scale or minimum of 32 elements beyond the first
  bool whole_nibbles = false;  // multiplies bytes of two nibbles without separating them
  int64_t row_step = 1;        // rows of x per instruction; m is padded to a multiple
};

class Rows8Kernel : public PieceKernel {
 public:
  explicit Rows8Kernel(const Rows8Method& method) : method_(method) {}
  std::string_view name() const override { return method_.name; }
  bool can_run(const Problem& p, const Hardware& hardware) const override;
  double estimate_us(const Problem& p, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override;
  // Fuses the norm in front: quantizes each row of x right after its norm.
  bool takes_along(const Problem&, const Hardware&) const override { return true; }
  void run(const Args& args, const Executor& executor) const override;

  PieceLimits limits() const override;
  size_t x_bytes(int64_t m, int64_t k) const override;
  void prepare(const Args& args, int64_t m_begin, int64_t m_end, std::byte* x) const override {
    method_.quantize(args, m_begin, m_end, x);
  }
  void multiply(const Args& args, const std::byte* x, std::byte* scratch, const LinearPiece& piece) const override {
    method_.multiply(args, x, scratch, piece);
  }

 private:
  struct Split {
    int64_t strips, rows;  // per piece
  };
  Split split(int64_t strips, int64_t m, int threads) const;
  // `x` is args.x or its norm.
  void quantize(const Args& args, const Executor& executor, Matrix x) const;
  void multiply_gated(const Args& args, const Executor& executor, const Rows8Piece& piece, std::byte* scratch) const;
  size_t worker_bytes(int64_t n, int64_t m, int threads, bool gated) const;
  Rows8Method method_;
};

}  // namespace millrace
