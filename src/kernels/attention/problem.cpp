#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/attention/attention.h"
#include "kernels/attention/scores.h"

namespace millrace {
namespace {

int64_t next_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

}  // namespace

AttentionProblem AttentionProblem::bucketed() const {
  AttentionProblem bucket = *this;
  bucket.sequences = next_power_of_two(sequences);
  // A batch of decodes stays one: different kernels suit decodes and chunks.
  bucket.rows = rows == sequences ? bucket.sequences : next_power_of_two(rows);
  bucket.context = std::max<int64_t>(64, next_power_of_two(context));
  return bucket;
}

AttentionProblem problem_of(const AttentionArgs& a) {
  AttentionProblem problem{a.kv.dtype, Precision::Fast, a.heads, a.kv.kv_heads, a.kv.head_dim, a.kv.block_size};
  problem.window = a.window;
  problem.softcap = a.softcap != 0;
  problem.sequences = std::ssize(a.sequences);
  for (const auto& s : a.sequences) {
    problem.rows += s.rows;
    problem.context = std::max<int64_t>(problem.context, s.past + s.rows);
  }
  problem.invariant = a.invariant;
  problem.calibrated = a.phi != nullptr;
  return problem;
}

UnifiedRoom unified_room(DType kv) {
  if (kv == DType::F16) return {kUnifiedAboveHalf / kLog2E, kUnifiedBelowHalf / kLog2E};
  return {kUnifiedRange / kLog2E, kUnifiedRange / kLog2E};
}

std::string to_string(const AttentionProblem& p) {
  return fmt::format("attention {}{}{} heads={}/{} head_dim={} block={}{}{} sequences={} rows={} context={}",
                     name(p.kv), p.precision == Precision::Exact ? " exact" : "", p.invariant ? " invariant" : "",
                     p.heads, p.kv_heads, p.head_dim, p.block_size,
                     p.window > 0 ? fmt::format(" window={}", p.window) : "", p.softcap ? " softcap" : "", p.sequences,
                     p.rows, p.context);
}

}  // namespace millrace
