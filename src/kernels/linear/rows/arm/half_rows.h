// Decode with f16 weights read in place: the kernel class that the instruction-set variants share.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace millrace {

inline constexpr int kHalfRows = 8;  // rows of weights that are read in turn

struct HalfRowsMethod {
  std::string_view name;
  Isa isa;
  float largest_x;  // x is scaled so that its largest element has this magnitude, then rounded to f16
  double products;  // throughput of multiplications relative to f32
  // Dot products of the first k elements of each row; k is a multiple of eight. While these rows are read in turn, the
  // data `ahead` elements beyond the first row is prefetched in memory order. A sum that overflows is not finite.
  void (*dot)(const uint16_t* const (&w)[kHalfRows], const uint16_t* x, int64_t k, int64_t ahead,
              float (&sums)[kHalfRows]);
};

class HalfRowsLinear : public LinearKernel {
 public:
  explicit HalfRowsLinear(const HalfRowsMethod& method) : method_(method) {}
  std::string_view name() const override { return method_.name; }
  bool can_run(const Problem& p, const Hardware& hardware) const override;
  double estimate_us(const Problem& p, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return static_cast<size_t>(p.k) * 2; }
  void run(const Args& args, const Executor& executor) const override;

 private:
  void multiply_tile(const Args& args, const uint16_t* x, float scale, int64_t n) const;
  HalfRowsMethod method_;
};

const LinearKernel* fhm_linear();   // FMLAL: products of halves are added in f32
const LinearKernel* fp16_linear();  // FMLA of halves: a few products are added in f16

}  // namespace millrace
