// A grammar as a program over bytes, which the pushdown automaton (pushdown.h) executes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

struct ProgramNode {
  enum class Kind : uint8_t {
    Bytes,   // takes one byte: `count` edges from `first` on
    Split,   // continues at each of `count` targets from `first` on
    Call,    // runs a rule from `start` to its End, then continues at `next`
    Repeat,  // the same, `least` to `most` times
    End,     // end of a rule or of the repeated part
  };
  Kind kind = Kind::End;
  int32_t first = 0, count = 0;
  int32_t start = -1, next = -1;
  int32_t least = 0, most = 0;

  bool calls() const { return kind == Kind::Call || kind == Kind::Repeat; }
};

struct ByteEdge {
  uint8_t from, to;  // both inclusive
  int32_t next;
};

struct GrammarProgram {
  std::vector<ProgramNode> nodes;
  std::vector<ByteEdge> edges;   // those of one node are sorted and disjoint
  std::vector<int32_t> targets;  // of splits
  int32_t start = 0;
  std::vector<CodeSet> sets;  // character sets of the grammar, and unions of alternative ones
  // Bytes that no edge tells apart have the same kind, so transition tables need one column per kind.
  std::array<uint8_t, 256> kind_of_byte{};
  int32_t byte_kinds = 1;
};

// Throws Usage if the grammar is too large.
GrammarProgram compile_program(const GrammarRules& rules);
// A program for one character of the set.
GrammarProgram compile_set(const CodeSet& set);

}  // namespace millrace
