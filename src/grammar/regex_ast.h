// A regular expression taken apart.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

struct PatternNode {
  enum class Kind : uint8_t {
    Empty,
    Characters,
    Sequence,
    Choice,
    Repeat,
    Begin,
    End,
    Ahead,
    NotAhead,
    Behind,
    NotBehind,
    Boundary
  };
  Kind kind = Kind::Empty;
  CodeSet characters;              // of Characters
  std::vector<PatternNode> parts;  // of Sequence, Choice; one of Repeat and of what looks ahead or behind
  int64_t least = 0, most = 0;     // of Repeat; most -1: without end
};

// Engines disagree about characters beyond ASCII in \d, \w, \s and the dot. What is written has to match for all of
// them, and what must not match for none.
enum class Reading : uint8_t { ForAll, ForAny };

// Throws Usage.
PatternNode parse_pattern(std::string_view regex, Reading reading = Reading::ForAll);

// \w, and what surely is none.
const CodeSet& word_characters();
const CodeSet& other_characters();

}  // namespace millrace
