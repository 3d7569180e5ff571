// The lengths of the matches of a regular expression, in characters.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/regex/syntax.h"

namespace millrace {

// A saturating product of counts, where -1 is unbounded.
inline int64_t multiply_counts(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a < 0 || b < 0) return -1;
  return std::min<int64_t>(a * b, int64_t{1} << 40);
}

struct PatternLengths {
  int64_t least = 0, most = 0;  // -1: unbounded
};
PatternLengths lengths_of(const RegexNode& node);

}  // namespace millrace
