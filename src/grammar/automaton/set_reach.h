// The allowed tokens among those that begin with characters of a set, for the states of one automaton. Results are
// cached.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton/pushdown.h"
#include "grammar/automaton/token_set.h"

namespace millrace {

class SetReach {
 public:
  SetReach(std::shared_ptr<const TokenSet> set, const GrammarProgram& grammar);

  struct Behind {
    Pushdown::State state;
    SetRun run;
    std::bitset<256> bytes;  // the bytes that lead to the state
  };
  struct Reach {
    SetRun plain;
    std::vector<Behind> behind;              // first bytes after which the set covers most tokens
    size_t gain_plain = 0, gain_behind = 0;  // tokens that need no walk of their own

    // A large set at the start is better than a smaller one behind many bytes: fewer tokens leave it.
    auto gain() const { return std::pair(gain_plain, gain_behind); }
  };
  Reach reach(Pushdown& automaton, Pushdown::State from);

  // Sets the bits of all allowed tokens, inside and outside of the set. all: every token.
  void add_allowed(Pushdown& automaton, Pushdown::State from, const Reach& reach, const TokenTrie& all,
                   std::span<uint32_t> mask) const;

  // To be called when the automaton has dropped its states.
  void forget() { steps_.clear(); }
  size_t memory() const;

 private:
  using State = Pushdown::State;
  // Transitions by one character of the set.
  struct Step {
    bool all = true, none = true;  // of the characters can follow the state
    std::vector<State> to;         // the next states, if all can
  };

  SetRun run(Pushdown& automaton, State from);
  const Step& step(Pushdown& automaton, State from);
  Step compute_step(Pushdown& automaton, State from) const;

  std::shared_ptr<const TokenSet> set_;
  std::vector<uint8_t> representatives_;  // one byte of each class that neither the set nor the grammar tells apart
  std::unordered_map<State, Step> steps_;
};

}  // namespace millrace
