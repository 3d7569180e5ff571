// The syntax tree of a regex. The dialect is Oniguruma's default one, which is what the regexes of tokenizer.json are
// written in: ^ and $ are line borders, \h is a hexadecimal digit, {n,m}+ repeats a repetition, classes know && and
// nest.
#pragma once

#include <string_view>
#include <vector>

#include "text/unicode/code_set.h"

namespace millrace {

struct RegexNode {
  enum class Kind { Set, Sequence, Alternatives, Repeat, Atomic, Look, Anchor };
  enum class Anchor { LineBegin, LineEnd, TextBegin, TextEnd, LastLineEnd, WordBorder, NoWordBorder };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::Sequence;
  CodeSet set;                      // Set: one character of it
  std::vector<RegexNode> children;  // Sequence, Alternatives: any number; Repeat, Atomic, Look: one
  int min = 0, max = kUnbounded;    // Repeat
  bool lazy = false;                // Repeat: as few as possible
  bool behind = false;              // Look
  bool negative = false;            // Look
  Anchor anchor = Anchor::LineBegin;

  bool can_be_empty() const;
};

// Throws Unsupported, naming the pattern, for what is malformed or outside of the dialect we take (backreferences,
// conditionals, grapheme clusters, unbounded repetition of what may be empty).
RegexNode parse_regex(std::string_view pattern);

}  // namespace millrace
