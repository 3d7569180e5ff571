// The syntax tree of a regular expression, and the parser of the two dialects that we read. Tokenizers run the tree
// (compiler.cpp, matcher.h); grammar/ turns it into rules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/unicode/code_set.h"

namespace millrace {

enum class RegexDialect : uint8_t {
  // Oniguruma's default syntax, which the regexes of tokenizer.json are written in: ^ and $ are line borders, \h is a
  // hexadecimal digit, {n,m}+ repeats a repetition, classes nest and know &&.
  Oniguruma,
  // ECMA-262 as JSON Schema's `pattern` and clients write it, with (?i), (?P<name>...), \A and \Z of other engines.
  Ecma,
};

// Engines of the Ecma dialect disagree about characters beyond ASCII in \d, \w, \s and the dot. A text that must match
// has to match in all engines, a text that must not match in none.
enum class RegexReading : uint8_t { ForAll, ForAny };

struct RegexNode {
  enum class Kind : uint8_t { Set, Sequence, Alternatives, Repeat, Atomic, Look, Anchor };
  enum class Anchor : uint8_t { LineBegin, LineEnd, TextBegin, TextEnd, LastLineEnd, WordBorder, NoWordBorder };
  static constexpr int64_t kUnbounded = -1;

  Kind kind = Kind::Sequence;
  CodeSet set;                        // Set: one character of it
  std::vector<RegexNode> children;    // Sequence, Alternatives: any number; Repeat, Atomic, Look: one
  int64_t min = 0, max = kUnbounded;  // Repeat
  bool lazy = false;                  // Repeat: as few as possible
  bool behind = false;                // Look
  bool negative = false;              // Look
  Anchor anchor = Anchor::LineBegin;

  bool can_be_empty() const;
  bool is_assertion() const { return kind == Kind::Look || kind == Kind::Anchor; }
};

// Throws for a malformed pattern and for what a dialect does not support: backreferences and conditionals in both,
// grapheme clusters and unbounded repetition of what may be empty in Oniguruma's. The error is Unsupported and quotes
// the pattern for Oniguruma's dialect, Usage with the position for Ecma's.
RegexNode parse_regex(std::string_view pattern, RegexDialect dialect, RegexReading reading = RegexReading::ForAll);

}  // namespace millrace
