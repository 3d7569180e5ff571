// Reads the text of a grammar into a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/ebnf.h"

namespace millrace {

struct EbnfNode {
  enum class Kind : uint8_t { Literal, Set, Rule, Sequence, Choice, Repeat };
  Kind kind = Kind::Sequence;
  std::string literal;  // bytes
  CharSet set;
  size_t rule = 0;
  int64_t least = 0, most = 0;  // of Repeat; most < 0: without end
  std::vector<EbnfNode> parts;
};

struct EbnfRules {
  std::vector<EbnfNode> bodies;
  size_t root = 0;
};

// Literals, classes, groups, choices, repetitions and names. Throws Usage, with the line, where the text is wrong.
EbnfRules parse_ebnf(std::string_view text);

}  // namespace millrace
