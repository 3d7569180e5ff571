// A regular expression taken apart.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "sampling/grammar/ebnf.h"

namespace millrace {

struct PatternNode {
  enum class Kind : uint8_t { Empty, Characters, Sequence, Choice, Repeat, Begin, End };
  Kind kind = Kind::Empty;
  CharSet characters;              // of Characters
  std::vector<PatternNode> parts;  // of Sequence, Choice; one of Repeat
  int64_t least = 0, most = 0;     // of Repeat; most -1: without end
};

// Throws Usage.
PatternNode parse_pattern(std::string_view regex);

}  // namespace millrace
