#include "engine/lookup_drafter.h"

#include <algorithm>

namespace millrace {
namespace {

// Shorter repetitions are mostly chance. From kLongest tokens on, a longer match predicts no better.
constexpr int64_t kShortest = 3, kLongest = 24;
// Bounds the time of a search: about 10 us.
constexpr int64_t kSearched = 32768;

// The number of equal tokens before positions a < b, including both; at most kLongest.
int64_t match_length(std::span<const int32_t> tokens, int64_t a, int64_t b) {
  const int64_t most = std::min(a + 1, kLongest);
  int64_t length = 0;
  while (length < most && tokens[static_cast<size_t>(a - length)] == tokens[static_cast<size_t>(b - length)]) ++length;
  return length;
}

}  // namespace

// The longest match wins, the latest of equally long ones. A draft that reaches the end of the known tokens continues
// with its own beginning: texts that repeat a short line have such matches.
int32_t LookupDrafter::draft(std::span<const int32_t> tokens, std::span<int32_t> draft) {
  const int64_t last = std::ssize(tokens) - 1, oldest = std::max<int64_t>(0, last - kSearched);
  int64_t longest = kShortest - 1, found = -1;
  for (int64_t i = last - 1; i >= oldest && longest < kLongest; --i) {
    if (tokens[static_cast<size_t>(i)] != tokens[static_cast<size_t>(last)]) continue;
    const int64_t length = match_length(tokens, i, last);
    if (length <= longest) continue;
    longest = length;
    found = i;
  }
  if (found < 0) return 0;
  const auto period = static_cast<size_t>(last - found);
  for (size_t i = 0; i < draft.size(); ++i)
    draft[i] = i < period ? tokens[static_cast<size_t>(found) + 1 + i] : draft[i - period];
  return static_cast<int32_t>(draft.size());
}

}  // namespace millrace
