#include "engine/step_pacer.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest step in the averages
// Step times change little between steps. The cap keeps one delayed step from distorting the averages.
constexpr double kMostGrowth = 1.25;
constexpr double kBurstShare = 1.0 / 48;  // of the time of all due prompts that a step may take

void follow(double& average, bool& known, double value) {
  average = known ? average + kNewest * (std::min(value, kMostGrowth * average) - average) : value;
  known = true;
}

// A piecewise linear function through ascending points; proportional to x beyond the last.
double interpolate(const std::vector<std::pair<double, double>>& points, double x) {
  if (points.empty()) return 0;
  const auto above = std::lower_bound(points.begin(), points.end(), std::pair(x, 0.0));
  if (above == points.begin()) return above->second;
  if (above == points.end()) return points.back().second * x / points.back().first;
  const auto& [x0, y0] = *std::prev(above);
  const auto& [x1, y1] = *above;
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

}  // namespace

double StepEstimate::verify_us(int64_t decodes, int64_t decode_positions, const DraftedRows& drafts) const {
  const auto sequences = static_cast<double>(decodes), positions = static_cast<double>(decode_positions);
  const auto tokens = static_cast<double>(drafts.tokens), branches = static_cast<double>(drafts.branches);
  const double context = positions / std::max(1.0, sequences);
  const double without = interpolate(by_verified, sequences) + decode_us_per_position * positions;
  // A branch reads the context of its sequence again.
  const double with = interpolate(by_verified, sequences + tokens + branches) + decode_us_per_position * positions +
                      (draft_us_per_position * tokens + decode_us_per_position * branches) * context +
                      copy_page_us * branches;
  if (copy_slot_us == 0) return with;
  // Recurrent state is copied to a checkpoint and back, and a rejection lets the next step compute the accepted tokens
  // again.
  return with + (with - without) + 2 * copy_slot_us * static_cast<double>(drafts.sequences);
}

double StepEstimate::us(int64_t decodes, int64_t decode_positions, int64_t chunk, int64_t chunk_past) const {
  const auto rows = static_cast<double>(decodes + chunk);
  const double attention = decode_us_per_position * static_cast<double>(decode_positions) +
                           prefill_us_per_position * static_cast<double>(chunk) * static_cast<double>(chunk_past);
  return interpolate(by_rows, rows) + attention;
}

double StepPacer::predicted_us(const Decodes& decodes, int64_t chunk, int64_t past) const {
  const double ratio = chunk == 0 ? alone_ : mixed_known_ ? mixed_ : alone_;
  return ratio * estimate_.us(decodes.rows, decodes.positions, chunk, past);
}

double StepPacer::budget_us(const Decodes& decodes, const DuePrompts& prompts) const {
  if (options_.target_us > 0) return options_.target_us;
  const double alone = predicted_us(decodes, 0, 0), usual = (1 + options_.slack) * alone;
  if (prompts.length == PromptLength::Long) return usual;
  const double burst = kBurstShare * predicted_us({}, prompts.rows, 0);
  const double longest = std::clamp(burst, options_.aged_us, options_.burst_us);
  const double age = std::min(1.0, prompts.age);
  return std::max({options_.short_us, usual, alone + (longest - alone) * age * age});
}

int64_t StepPacer::chunk(const Decodes& decodes, const DuePrompts& prompts, int64_t most) {
  if (decodes.rows == 0 || most <= 1) return most;
  prepare();
  const double budget = budget_us(decodes, prompts);
  int64_t fits = 1, too_much = most + 1;
  while (too_much - fits > 1) {
    const int64_t middle = (fits + too_much) / 2;
    (predicted_us(decodes, middle, prompts.past) <= budget ? fits : too_much) = middle;
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
