// The bytecode of a regex, and its compiler.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/regex/syntax.h"
#include "text/unicode/code_set.h"

namespace millrace {

struct RegexProgram {
  enum class Op : uint8_t {
    Set,             // one character of sets[a]
    Loop,            // as many characters of sets[a] as possible, fewer on backtracking
    PossessiveLoop,  // the same, never fewer
    BoundedLoop,     // from `min` to `max` characters of sets[a], fewer on backtracking
    Split,           // try a, then b
    Jump,            // to a
    Look,            // the code at a must match here (negative: must not); continue at b
    LookBehind,      // one of behinds[a] must end here (negative: none may); continue at b
    Atomic,          // the first match of the code at a; continue at b
    Anchor,
    Match,
  };
  using Bytes = std::bitset<256>;
  static constexpr int32_t kNone = -1;

  struct Instruction {
    Op op;
    bool negative = false;
    RegexNode::Anchor anchor{};
    int16_t min = 0, max = 0;
    uint32_t a = 0, b = 0;
    int32_t guard = kNone;  // Split: branch a can only match if guards[guard] has the next byte
    int32_t state = kNone;  // row in the memo; every instruction with a choice has one
  };
  struct Behind {
    int characters;  // number of characters to step back
    uint32_t code;
  };

  std::vector<Instruction> code;
  std::vector<CodeTable> sets;
  std::vector<Bytes> guards;
  std::vector<std::vector<Behind>> behinds;
  std::vector<bool> inner_states;  // by state: the memo holds the ends of successes too, not only failures
  bool can_be_empty = false;
  Bytes first_bytes;  // of every match; undefined if can_be_empty
};

// Throws Unsupported if the program would be too large or a lookbehind has no fixed length.
RegexProgram compile_regex(std::string_view pattern);

}  // namespace millrace
