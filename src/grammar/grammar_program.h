// A grammar as a program over bytes: what a pushdown automaton (pushdown.h) steps through.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

struct ProgramNode {
  enum class Kind : uint8_t {
    Bytes,   // takes one byte: `count` edges from `first` on
    Split,   // goes on at each of `count` targets from `first` on
    Call,    // a rule from `start` to its End, then `next`
    Repeat,  // that, `least` to `most` times
    End,     // of a rule or of what is repeated
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
  std::vector<ByteEdge> edges;   // of one node: sorted, apart
  std::vector<int32_t> targets;  // of splits
  int32_t start = 0;
  std::vector<CodeSet> sets;  // the sets of characters that stand in it, alone or as a choice, each once
  // Bytes that no edge tells apart have one kind: tables need a column for each kind only.
  std::array<uint8_t, 256> kind_of_byte{};
  int32_t byte_kinds = 1;
};

// Throws Usage where the grammar is wrong or too large.
GrammarProgram compile_program(const GrammarRules& rules);
// A program that takes one character of the set.
GrammarProgram compile_set(const CodeSet& set);

}  // namespace millrace
