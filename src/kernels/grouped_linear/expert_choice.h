// Chooses the linear kernel of an expert by its number of rows.
#pragma once

#include <array>
#include <span>

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/pieces.h"

namespace millrace {

// The kernels that can compute experts of one shape. Lives on the stack of a step: never allocates.
class ExpertChoice {
 public:
  // The matrices of one group as a linear layer; m is ignored. `only`: the sole candidate; null: all.
  ExpertChoice(const LinearProblem& matrix, const Hardware& hardware, const PieceKernel* only);

  std::span<const PieceKernel* const> candidates() const { return {candidates_.data(), count_}; }
  // The kernel with the best estimate for an expert of m rows; null: none can run it.
  const PieceKernel* of(int64_t m);
  // The kernel for experts of any number of rows.
  const PieceKernel* of_any();

 private:
  const PieceKernel* best(int64_t m) const;

  LinearProblem matrix_;
  const Hardware& hardware_;
  std::array<const PieceKernel*, 32> candidates_;
  size_t count_ = 0;
  std::array<const PieceKernel*, 64> by_bucket_{};  // by index of the bucket of m; null: not chosen yet
};

}  // namespace millrace
