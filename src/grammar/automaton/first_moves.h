// The nodes that a program can reach before it takes a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "grammar/automaton/grammar_program.h"

namespace millrace {

class FirstMoves {
 public:
  // Keeps a reference to the program.
  explicit FirstMoves(const GrammarProgram& program);

  // Whether a node can reach the end of its rule without a byte.
  bool nullable(int32_t node) const { return nullable_[static_cast<size_t>(node)]; }
  // Whether a call can return without a byte.
  bool skips(const ProgramNode& node) const {
    return nullable(node.start) || (node.kind == ProgramNode::Kind::Repeat && node.least == 0);
  }

  struct Move {
    int32_t to;
    bool call;
  };
  // The nodes that a node can reach without a byte, including the return of a call that can take none.
  template <class Visit>
  void moves(int32_t from, Visit visit) const {
    const ProgramNode& node = program_.nodes[static_cast<size_t>(from)];
    if (node.kind == ProgramNode::Kind::Split) {
      for (int32_t i = 0; i < node.count; ++i)
        visit(Move{program_.targets[static_cast<size_t>(node.first + i)], false});
    } else if (node.calls()) {
      visit(Move{node.start, true});
      if (skips(node)) visit(Move{node.next, false});
    }
  }

  // The strongly connected component of each node.
  std::vector<int32_t> components() const;

 private:
  void find_nullable();

  const GrammarProgram& program_;
  std::vector<bool> nullable_;
};

}  // namespace millrace
