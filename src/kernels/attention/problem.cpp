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
  AttentionProblem problem{a.kv.dtype,   Precision::Fast, a.heads,        a.kv.kv_heads,
                           a.kv.key_dim, a.kv.value_dim,  a.kv.block_size};
  problem.window = a.window;
  problem.softcap = a.softcap != 0;
  problem.sequences = std::ssize(a.sequences);
  for (const auto& s : a.sequences) {
    problem.rows += s.rows;
    problem.context = std::max<int64_t>(problem.context, s.past + s.rows);
  }
  problem.invariant = a.invariant;
  problem.calibrated = a.phi != nullptr;
  problem.latent = a.kv.latent;
  problem.sinks = a.sinks != nullptr;
  problem.bidirectional = a.bidirectional;
  return problem;
}

UnifiedRoom unified_room(DType kv) {
  if (kv == DType::F16) return {kUnifiedAboveHalf / kLog2E, kUnifiedBelowHalf / kLog2E};
  return {kUnifiedRange / kLog2E, kUnifiedRange / kLog2E};
}

std::string row_sizes(int key_dim, int value_dim, bool latent) {
  if (key_dim == value_dim && !latent) return fmt::format("head_dim={}", key_dim);
  return fmt::format("key_dim={} value_dim={}{}", key_dim, value_dim, latent ? " latent" : "");
}

std::string to_string(const AttentionProblem& p) {
  return fmt::format("attention {}{}{}{} heads={}/{} {} block={}{}{}{}{} sequences={} rows={} context={}", name(p.kv),
                     p.precision == Precision::Exact ? " exact" : "", p.invariant ? " invariant" : "",
                     p.calibrated ? " calibrated" : "", p.heads, p.kv_heads,
                     row_sizes(p.key_dim, p.value_dim, p.latent), p.block_size,
                     p.window > 0 ? fmt::format(" window={}", p.window) : "", p.softcap ? " softcap" : "",
                     p.sinks ? " sinks" : "", p.bidirectional ? " bidirectional" : "", p.sequences, p.rows, p.context);
}

}  // namespace millrace
