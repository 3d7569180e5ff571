// A kernel over strips of eight rows of weights, apart from its instructions: quantizing x, splitting the work,
// estimating. Strips come packed (the rows8 layout) or are plain rows in place.
//
// What an instruction set brings is a Rows8Method: plain functions and a few numbers. They are compiled for that
// instruction set; everything here is not, since it also runs where they cannot.
#pragma once

#include <optional>

#include "kernels/linear/linear.h"

namespace millrace {

// Outputs that one worker makes at a time: strips of eight rows of weights, rows of x.
struct Rows8Piece {
  int64_t strip_begin = 0, strip_end = 0;
  int64_t m_begin = 0, m_end = 0;
  int64_t strip_after = 0;  // that the worker probably takes next: worth fetching ahead
};

inline constexpr int64_t kMostPanels = 4;  // of one piece

struct Rows8Method {
  std::string_view name;
  Isa isa;
  int64_t min_m = 1, max_m = INT64_MAX;
  bool plain_rows = false;  // reads F16 and BF16 in place as well

  // x becomes int8 in tiles of rows; tiles are independent of each other.
  int64_t tile_rows = 1;
  int64_t quantized_rows = 0;  // at a time; 0: a tile
  size_t (*x_bytes)(int64_t m, int64_t k) = nullptr;
  void (*quantize)(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) = nullptr;

  size_t scratch_bytes = 0;      // of each worker
  int64_t strips_per_panel = 0;  // that are unpacked together and then used for many rows; 0: none are
  void (*multiply)(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) = nullptr;

  // What estimates go by. Shares of its instruction set's int8 peak and of the read bandwidth that it reaches;
  // unpacking takes as long as multiplying with so many rows, a part of it growing with the effort that the format
  // takes.
  double compute_share = 0.5, memory_share = 0.9;
  std::optional<Isa> outgrown_with;  // cores that have this, too, read less well that way
  double beside_faster = 1;  // of compute_share, on machines that have a faster instruction set too
  double unpack_rows = 0, unpack_effort_rows = 0;
  double scale_effort = 0;     // of a row of x, for every scale and minimum of 32 elements beyond the first
  bool whole_nibbles = false;  // are multiplied without taking them apart
  int64_t row_step = 1;        // rows of x that an instruction takes, wanted or not
};

class Rows8Kernel : public LinearKernel {
 public:
  explicit Rows8Kernel(const Rows8Method& method) : method_(method) {}
  std::string_view name() const override { return method_.name; }
  bool can_run(const Problem& p, const Hardware& hardware) const override;
  double estimate_us(const Problem& p, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override;
  // The norm in front: x is quantized row by row as soon as it is normed.
  bool takes_along(const Problem&, const Hardware&) const override { return true; }
  void run(const Args& args, const Executor& executor) const override;

 private:
  struct Split {
    int64_t strips, rows;  // of one piece
  };
  Split split(int64_t strips, int64_t m, int threads) const;
  // `x` is args.x, or the norm of it.
  void quantize(const Args& args, const Executor& executor, Matrix x) const;
  void multiply_gated(const Args& args, const Executor& executor, const Rows8Piece& piece, std::byte* scratch) const;
  size_t x_bytes(int64_t m, int64_t k) const;
  size_t worker_bytes(int64_t n, int64_t m, int threads, bool gated) const;
  Rows8Method method_;
};

}  // namespace millrace
