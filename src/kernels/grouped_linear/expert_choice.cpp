#include "kernels/grouped_linear/expert_choice.h"

#include "base/error.h"
#include "hardware/ceilings.h"

namespace millrace {
namespace {

bool runs(const PieceKernel& kernel, LinearProblem problem, int64_t m, const Hardware& hardware) {
  problem.m = m;
  return kernel.can_run(problem, hardware);
}

// Index of a bucket of rows: 1 to 8, then two for each power of two.
size_t bucket_index(int64_t bucket) {
  if (bucket <= 8) return static_cast<size_t>(bucket);
  size_t index = 8;
  for (; bucket >= 16; bucket /= 2) index += 2;
  return bucket > 8 ? index + 1 : index;
}

}  // namespace

ExpertChoice::ExpertChoice(const LinearProblem& matrix, const Hardware& hardware, const PieceKernel* only)
    : matrix_(matrix), hardware_(hardware) {
  matrix_.gated = false;  // gate and up are two matrices
  for (const auto* kernel : piece_kernels()) {
    if (only != nullptr && kernel != only) continue;
    if (!runs(*kernel, matrix_, 1, hardware) && !runs(*kernel, matrix_, 2, hardware)) continue;
    MR_ASSERT(count_ < candidates_.size());
    candidates_[count_++] = kernel;
  }
}

const PieceKernel* ExpertChoice::best(int64_t m) const {
  const PieceKernel* best = nullptr;
  double least_us = 0;
  LinearProblem problem = matrix_;
  problem.m = m;
  for (const auto* kernel : candidates()) {
    if (!kernel->can_run(problem, hardware_)) continue;
    const double us = kernel->estimate_us(problem, hardware_);
    if (best == nullptr || us < least_us) best = kernel, least_us = us;
  }
  return best;
}

const PieceKernel* ExpertChoice::of(int64_t m) {
  const int64_t bucket = bucket_rows(m);
  const PieceKernel*& chosen = by_bucket_[bucket_index(bucket)];
  if (chosen == nullptr) chosen = best(bucket);
  if (chosen == nullptr && m == 1) chosen = best(2);  // kernels for two rows and more also compute one
  return chosen;
}

// Weighs decode and prompts alike. The choice depends on nothing but the shape of the matrices.
const PieceKernel* ExpertChoice::of_any() {
  const Hardware& one = one_thread_of(hardware_);
  const PieceKernel* best = nullptr;
  double least_us = 0;
  for (const auto* kernel : candidates()) {
    if (!kernel->limits().any_rows) continue;
    double us = 0;
    LinearProblem problem = matrix_;
    for (const int64_t m : {2, 8, 64}) {
      problem.m = m;
      us += kernel->estimate_us(problem, one) / static_cast<double>(m);
    }
    if (best == nullptr || us < least_us) best = kernel, least_us = us;
  }
  return best;
}

}  // namespace millrace
