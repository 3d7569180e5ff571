#include "engine/step_pacer.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest step in the averages
// Step times change little between steps. The cap keeps one delayed step from distorting the averages.
constexpr double kMostGrowth = 1.25;

void follow(double& average, bool& known, double value) {
  average = known ? average + kNewest * (std::min(value, kMostGrowth * average) - average) : value;
  known = true;
}

}  // namespace

double StepEstimate::us(int64_t decodes, int64_t decode_positions, int64_t chunk, int64_t chunk_past) const {
  const auto rows = static_cast<double>(decodes + chunk);
  const double attention = decode_us_per_position * static_cast<double>(decode_positions) +
                           prefill_us_per_position * static_cast<double>(chunk) * static_cast<double>(chunk_past);
  if (by_rows.empty()) return attention;
  auto above = std::lower_bound(by_rows.begin(), by_rows.end(), std::pair(rows, 0.0));
  if (above == by_rows.begin()) return above->second + attention;
  if (above == by_rows.end()) return by_rows.back().second * rows / by_rows.back().first + attention;
  const auto& [r0, t0] = *std::prev(above);
  const auto& [r1, t1] = *above;
  return t0 + (t1 - t0) * (rows - r0) / (r1 - r0) + attention;
}

double StepPacer::predicted_us(const Decodes& decodes, int64_t chunk, int64_t past) const {
  const double ratio = chunk == 0 ? alone_ : mixed_known_ ? mixed_ : alone_;
  return ratio * estimate_.us(decodes.rows, decodes.positions, chunk, past);
}

int64_t StepPacer::chunk(const Decodes& decodes, PromptLength length, int64_t past, int64_t most) {
  if (decodes.rows == 0 || most <= 1) return most;
  prepare();
  const double alone = predicted_us(decodes, 0, 0);
  const double least = length == PromptLength::Short ? options_.short_us : 0;
  const double budget = options_.target_us > 0 ? options_.target_us : std::max(least, (1 + options_.slack) * alone);
  int64_t fits = 1, too_much = most + 1;
  while (too_much - fits > 1) {
    const int64_t middle = (fits + too_much) / 2;
    (predicted_us(decodes, middle, past) <= budget ? fits : too_much) = middle;
  }
  return fits;
}

void StepPacer::record(const Decodes& decodes, int64_t chunk, int64_t past, double us) {
  if (decodes.rows == 0 || estimate_.by_rows.empty()) return;
  const double estimate = estimate_.us(decodes.rows, decodes.positions, chunk, past);
  if (estimate <= 0) return;
  const double ratio = us / estimate;
  chunk == 0 ? follow(alone_, alone_known_, ratio) : follow(mixed_, mixed_known_, ratio);
}

}  // namespace millrace
