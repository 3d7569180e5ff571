#include "base/nearest.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/ascii.h"

namespace millrace {
namespace {

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

constexpr size_t kLongest = 200;  // the time grows with the product of both lengths
constexpr size_t kShortestBeginning = 4;

std::string shortest_beginning_with(std::string_view given, const std::vector<std::string>& known) {
  std::string best;
  if (given.size() < kShortestBeginning) return best;
  for (const std::string& name : known) {
    if (!ascii_lower(name).starts_with(ascii_lower(given))) continue;
    if (best.empty() || name.size() < best.size()) best = name;
  }
  return best;
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& known) {
  if (given.size() > kLongest) return "";
  std::string best = shortest_beginning_with(given, known);
  if (!best.empty()) return best;
  size_t least = std::max<size_t>(given.size() / 3, 2) + 1;
  for (const std::string& name : known) {
    const size_t d = distance(ascii_lower(given), ascii_lower(name));
    if (d >= least || d >= name.size()) continue;
    least = d;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  const std::string best = nearest_name(given, known);
  return best.empty() ? "" : fmt::format("did you mean {}?", best);
}

}  // namespace millrace
