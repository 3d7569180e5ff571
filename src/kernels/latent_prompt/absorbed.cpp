#include "kernels/latent_prompt/absorbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"

namespace millrace {
namespace {

int64_t power_of_two(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

}  // namespace

double AbsorbedForm::estimate_us(const Problem& p, const Hardware& hardware) const {
  AttentionProblem attention{p.kv, p.precision, p.heads, 1, p.latent_dim + p.rotary_dim, p.latent_dim, p.block_size};
  attention.latent = true;
  attention.sequences = 1;
  attention.rows = p.rows;
  attention.context = p.context;
  double best = std::numeric_limits<double>::infinity();
  for (const AttentionKernel* kernel : attention_) {
    if (kernel->can_run(attention, hardware)) best = std::min(best, kernel->estimate_us(attention, hardware));
  }
  // Queries into latent space, and its sums to values. Kernels of quantized weights are faster, but these products
  // are a small part.
  const double products = 2.0 * double(p.rows) * p.heads * p.latent_dim * (p.plain_dim + p.value_dim);
  if (hardware.device == DeviceKind::Cpu) return best + products / (1e3 * hardware.ceilings.f32_gflops);
  constexpr double kTwoLaunches = 8, kShareOfPeak = 0.5;
  const bool exact = p.precision == Precision::Exact;
  const double peak = exact ? hardware.ceilings.f32_gflops : kShareOfPeak * hardware.ceilings.bf16_gflops;
  return best + kTwoLaunches + products / (1e3 * peak);
}

void AbsorbedForm::run(const Args&, const Executor&) const { MR_ASSERT(!"Ops runs the ops of the absorbed form"); }

bool LatentPromptOp::is_absorbed(const Kernel<LatentPromptOp>& kernel) {
  return dynamic_cast<const AbsorbedForm*>(&kernel) != nullptr;
}

LatentPromptOp::Problem LatentPromptOp::Problem::bucketed() const {
  Problem bucket = *this;
  bucket.rows = power_of_two(rows);
  bucket.context = std::max(power_of_two(context), bucket.rows);
  return bucket;
}

std::string to_string(const LatentPromptOp::Problem& p) {
  return fmt::format("latent_prompt {}{} heads={} plain={} rotary={} value={} latent={} block={} rows={} context={}",
                     name(p.kv), p.precision == Precision::Exact ? " exact" : "", p.heads, p.plain_dim, p.rotary_dim,
                     p.value_dim, p.latent_dim, p.block_size, p.rows, p.context);
}

}  // namespace millrace
