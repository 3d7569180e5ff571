#include "kernels/linear/cuda/plain/flat_cut.h"

#include <algorithm>
#include <cmath>

namespace millrace {

int tokens_of(int64_t m) {
  int tokens = 8;
  while (tokens < m && tokens < kMaxTokens) tokens *= 2;
  return tokens;
}

int bytes_beyond(int tokens, int rows) { return (64 * groups_of(tokens, rows) - rows) * kRowBytes; }

int bytes_received(int tokens, int rows, int splits) { return splits == 2 ? rows * tokens * 2 : 0; }

int stages_of(const Variant& v, int tokens, int rows, int splits) {
  const int kilobytes = tokens > 64 ? kAllKilobytes : v.kilobytes;
  const int most = (kilobytes == kAllKilobytes ? kMostKilobytes : kHalfKilobytes + 1) * 1024;
  const int room = std::min(kilobytes * 1024, most - bytes_received(tokens, rows, splits));
  return std::clamp((room - bytes_beyond(tokens, rows)) / ((rows + tokens) * kRowBytes), 2, v.stages);
}

namespace {

bool is_alone(const Variant& v, int tokens) { return v.kilobytes == kAllKilobytes || tokens > 64; }

// Time to stream the weights. The multiprocessor with the most rows determines it. It can exceed its fair share of the
// bandwidth slightly, and by far if the neighbour that shares its memory port is idle.
double memory_us(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v, int rows, int splits,
                 double ramp) {
  const int tokens = tokens_of(p.m);
  const int64_t blocks = ceil_div(p.n, rows) * ceil_div(p.m, tokens) * splits;
  const double each = static_cast<double>(rows * ceil_div(ceil_div(p.k, kDepth), splits) * kRowBytes);
  const double share = limits.bytes_per_us / limits.sms, reach = 2 * blocks > limits.sms + 8 ? 1.1 : 1.8;
  const double busiest = ramp + static_cast<double>(ceil_div(blocks, limits.sms)) * each / (reach * share);
  const double in_flight = static_cast<double>(stages_of(v, tokens, rows, splits)) * rows * kRowBytes;
  const double slow = std::max(1.0, 48e3 / in_flight);  // latency: about 48 KB must be in flight
  return std::max(stream_us(p, limits, blocks, 2, ramp), busiest) * slow;
}

// Fitted to 48 to 128 rows and up to eight splits, for 17 shapes at 8, 64 and 128 tokens on an H200.
double cost_us(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v, int rows, int splits) {
  const int tokens = tokens_of(p.m);
  const int64_t row_blocks = ceil_div(p.n, rows), token_blocks = ceil_div(p.m, tokens);
  const int64_t blocks = row_blocks * token_blocks * splits, iterations = ceil_div(ceil_div(p.k, kDepth), splits);
  const double m = static_cast<double>(std::min<int64_t>(p.m, tokens));
  // A block that occupies a multiprocessor alone ramps up sooner, but the next block waits for its end.
  const double ramp = !is_alone(v, tokens) ? 2.2 : blocks <= limits.sms ? 1.2 : 3.2;
  const double memory = memory_us(p, limits, v, rows, splits, ramp);
  // Weights and x pass through the L2 cache in lines; a stage row that is not aligned to a line touches two.
  const double lines = static_cast<double>(blocks * iterations) * (rows + m) * (p.k % kDepth == 0 ? 1 : 2);
  const double cache = ramp + lines * kRowBytes / (2.13 * limits.bytes_per_us);
  const double crowded = splits > 2 ? 1 + 0.002 * std::min(m, 64.0) : 1;  // large clusters are not distributed evenly
  const double join = splits == 1 ? 0 : splits == 2 ? 0.1 : 0.12 * splits + 0.012 * m;
  const double flops = 2 * static_cast<double>(row_blocks * rows) * static_cast<double>(p.k * token_blocks * tokens);
  const double products =
      tokens == kMaxTokens ? 8 + flops / (0.65 * limits.flops_per_us) : 2 + flops / (0.8 * limits.flops_per_us);
  const double many = tokens > 64 ? 1.15 : 1;
  return std::max(std::pow(std::pow(memory, 6) + std::pow(cache, 6), 1.0 / 6) * crowded, products) * many + 0.014 * m +
         join;
}

// Clusters of four blocks that each need a whole multiprocessor leave some multiprocessors of each GPC idle.
bool fits_at_once(const CudaLimits& limits, bool alone, int splits, int64_t blocks) {
  return !alone || splits <= 2 || blocks <= limits.sms * 9 / 10;
}

}  // namespace

Cut choose_cut(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v) {
  const int tokens = tokens_of(p.m);
  const int most = tokens > 64 ? 128 : v.most_rows, least = tokens > 128 ? 128 : tokens > 64 ? 64 : v.least_rows;
  const bool alone = is_alone(v, tokens);
  Cut best{most, 1, cost_us(p, limits, v, most, 1), alone};
  for (int rows = most; rows >= least; rows -= kTileRows) {
    const int64_t blocks = ceil_div(p.n, rows) * ceil_div(p.m, tokens);
    for (int splits = 1; splits <= v.most_splits; splits *= 2) {
      if (splits > 1 && (blocks * splits / 2 >= limits.sms || ceil_div(p.k, kDepth) / splits < 4)) break;
      if (!fits_at_once(limits, alone, splits, blocks * splits)) continue;
      const double us = cost_us(p, limits, v, rows, splits);
      if (us < best.us) best = {rows, splits, us, alone};
    }
    // One block for each of two slots per multiprocessor, such that at most one of the two has an extra tile.
    const int64_t places = 2 * limits.sms, lower = places * (rows / kTileRows) - ceil_div(p.n, kTileRows);
    if (!alone && rows > least && lower >= limits.sms && lower < places) {
      const double us = cost_us(p, limits, v, rows - kTileRows / 2, 1);
      if (us < best.us) best = {rows, 1, us, alone, static_cast<int>(lower)};
    }
  }
  return best;
}

}  // namespace millrace
