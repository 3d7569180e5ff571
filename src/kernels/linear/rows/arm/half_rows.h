// F16 rows in place times one row of x, for decode: what kernels with different instructions for it have in common.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace millrace {

inline constexpr int kHalfRows = 8;  // of weights that are read side by side

struct HalfRowsMethod {
  std::string_view name;
  Isa isa;
  float largest_x;  // x is rounded to f16, scaled so that this is its largest element
  double products;  // of a multiplication of f32, in the time of one
  // The first k elements of the rows, k being a multiple of eight. While these rows are read across, what lies `ahead`
  // of the first one is fetched in the order of memory. A sum that overflows is not finite.
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
