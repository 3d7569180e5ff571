// The pushdown automaton of a grammar, made deterministic lazily. A state is the set of all (node, stack) pairs that
// are possible after the bytes so far. States and stacks are interned: texts with the same continuations lead to the
// same state number, and a known transition is one table lookup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/grammar_program.h"
#include "grammar/automaton/intern_index.h"

namespace millrace {

class Pushdown {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;

  // The cost of a step is bounded: an ambiguous grammar can have very many (node, stack) pairs in one state.
  struct TooComplex {};

  explicit Pushdown(GrammarProgram program);

  const GrammarProgram& program() const { return program_; }
  State start() const { return start_; }
  bool accepting(State state) const { return states_[static_cast<size_t>(state)].accepting; }
  // Throws TooComplex.
  State next(State state, uint8_t byte) {
    const size_t cell = static_cast<size_t>(state) * width_ + program_.kind_of_byte[byte];
    const State known = table_[cell];
    return known != kUnknown ? known : step(state, byte);
  }

  // A representative of the states that allow the same tokens of up to so many bytes.
  State alike(State state, int32_t token_bytes);

  // Drops all states but the first. State numbers held elsewhere become invalid.
  void reset();
  size_t bytes() const;
  // Sets the total work that the following steps may do.
  void allow(int64_t work) { work_ = work; }

 private:
  static constexpr State kUnknown = -2;

  // A set of stacks as a tree from the top down: the return node of each frame, and the set of stacks below it.
  struct Frame {
    int32_t node, count, below;  // count: of a Repeat, its repetitions so far
    bool operator==(const Frame&) const = default;
  };
  struct StackSet {
    size_t first, size;
    bool bottom;  // includes the empty stack: the text may end with the rule
  };
  struct Item {
    int32_t node, stack;
    bool operator==(const Item&) const = default;
  };
  struct StateItems {
    size_t first, size;
    bool accepting;
  };

  State step(State state, uint8_t byte);
  const ByteEdge* find_edge(const ProgramNode& node, uint8_t byte) const;
  bool takes_alone(const StateItems& state, const ProgramNode& node, const ByteEdge& edge) const;
  State intern_state();
  State intern_state(std::span<const Item> items, bool accepting);
  int32_t alike_stack(int32_t stack, int32_t token_bytes, int depth);
  void enter(int32_t node, int32_t stack);
  void expand(int32_t node, int32_t stack);
  void leave(int32_t stack);
  void begin_closure();
  int32_t push(int32_t node, int32_t count, int32_t below);
  int32_t intern_stack(std::span<const Frame> frames, bool bottom);
  int32_t unite(int32_t a, int32_t b, int depth = 0);
  void spend(int64_t work) {
    if ((work_ -= work) < 0) throw TooComplex();
  }

  GrammarProgram program_;
  size_t width_;
  State start_ = 0;

  std::vector<StateItems> states_;
  std::vector<Item> items_;
  std::vector<State> table_;
  InternIndex state_index_;

  std::vector<StackSet> stacks_;
  std::vector<Frame> frames_;
  InternIndex stack_index_;
  std::unordered_map<uint64_t, int32_t> united_;
  std::vector<State> alike_;                           // by state
  std::unordered_map<int32_t, int32_t> alike_stacks_;  // cache

  // The state under construction.
  std::vector<Item> closure_, waiting_, kept_;
  std::vector<int32_t> place_;  // by node: its index in closure_, or -1
  bool accepting_ = false;
  int64_t work_ = 0;
};

}  // namespace millrace
