// A regex as instructions of a small machine, and the compiler from the syntax tree.
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
    Loop,            // as many characters of sets[a] as there are, fewer on backtracking
    PossessiveLoop,  // the same, never fewer
    BoundedLoop,     // from `min` to `max` characters of sets[a], fewer on backtracking
    Split,           // try a, then b
    Jump,            // to a
    Look,            // the code at a must match here (or must not: negative); go on at b
    LookBehind,      // one of behinds[a] must end here (or none may: negative); go on at b
    Atomic,          // the code at a, its first way only; go on at b
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
    int32_t guard = kNone;  // Split: way a can only match when guards[guard] has the next byte
    int32_t state = kNone;  // what a failure here is remembered under: every instruction that has a choice has one
  };
  struct Behind {
    int characters;  // how far to step back
    uint32_t code;
  };

  std::vector<Instruction> code;
  std::vector<CodeTable> sets;
  std::vector<Bytes> guards;
  std::vector<std::vector<Behind>> behinds;
  std::vector<bool> inner_states;  // by state: whether ends of success are remembered, not only failures
  bool can_be_empty = false;
  Bytes first_bytes;  // of every match; meaningless when can_be_empty
};

// Throws Unsupported when the program would grow too large or a lookbehind has no fixed length.
RegexProgram compile_regex(std::string_view pattern);

}  // namespace millrace
