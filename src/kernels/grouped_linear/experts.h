// Grouped linear layers on the CPU: the products of all experts are cut into pieces of linear kernels, which the
// workers share. The pieces cost about the same whatever the routing.
//
// A step has up to three parallel regions:
//   1. the rows of each active group are gathered and converted (quantized),
//   2. pieces of (group, strips, rows) are multiplied; gate, up and activation of a piece stay in the cache,
//   3. with `sum`, the products of each row's pairs are added up in the order of its choices.
// The order of every sum is fixed, so results do not depend on the number of workers.
#pragma once

#include <string>

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/pieces.h"

namespace millrace {

class ExpertsKernel final : public Kernel<GroupedLinearOp> {
 public:
  // Chooses a linear kernel for each group by its number of rows.
  explicit ExpertsKernel(Precision precision);
  // Uses one linear kernel, which must compute any number of rows, for every group. Only a measurement can tell that it
  // is faster than the choices of `base`.
  ExpertsKernel(const PieceKernel& only, const ExpertsKernel& base);

  std::string_view name() const override { return name_; }
  bool can_run(const Problem& p, const Hardware& hardware) const override;
  double estimate_us(const Problem& p, const Hardware& hardware) const override;
  const Kernel* variant_of(const Problem&, const Hardware&) const override { return base_; }
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override;
  void run(const Args& args, const Executor& executor) const override;

 private:
  Precision precision_ = Precision::Fast;
  const PieceKernel* only_ = nullptr;
  const ExpertsKernel* base_ = nullptr;
  std::string name_;
};

}  // namespace millrace
