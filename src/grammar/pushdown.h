// The automaton of a grammar, made deterministic as it is used: a state is everything the grammar could be in the
// middle of after the bytes so far. States and stacks are kept once each, so that two texts that leave the same future
// lead to the same number, and a step that was taken before is one look into a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar_program.h"
#include "grammar/intern_index.h"

namespace millrace {

class Pushdown {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;

  // What a step may cost is bounded: an ambiguous grammar can be in very many places at once.
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

  // One of the states that the same tokens may follow, if none has more bytes than that. The same number each time.
  State alike(State state, int32_t token_bytes);

  // Forgets all states but the first; those that are held elsewhere mean nothing any more.
  void reset();
  size_t bytes() const;
  // The work that the steps from here on may do together.
  void allow(int64_t work) { work_ = work; }

 private:
  static constexpr State kUnknown = -2;

  // A set of stacks, as a tree from the top down: what a rule returns to, and the stacks below that.
  struct Frame {
    int32_t node, count, below;  // count: where node is a Repeat, how often its part came
    bool operator==(const Frame&) const = default;
  };
  struct StackSet {
    size_t first, size;
    bool bottom;  // the empty stack is one of them: the text may end where the rule does
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
  std::unordered_map<int32_t, int32_t> alike_stacks_;  // of stacks that were asked for

  // The state that is being put together.
  std::vector<Item> closure_, waiting_, kept_;
  std::vector<int32_t> place_;  // of each node in closure_, or -1
  bool accepting_ = false;
  int64_t work_ = 0;
};

}  // namespace millrace
