// What one automaton makes of the tokens that begin with characters of a set. What was found out is kept.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/pushdown.h"
#include "grammar/token_set.h"

namespace millrace {

class SetReach {
 public:
  SetReach(std::shared_ptr<const TokenSet> set, const GrammarProgram& grammar);

  struct Behind {
    Pushdown::State state;
    SetRun run;
    std::bitset<256> bytes;  // that lead there
  };
  struct Reach {
    SetRun plain;
    std::vector<Behind> behind;              // first bytes, where what follows covers
    size_t gain_plain = 0, gain_behind = 0;  // tokens that need no look of their own

    // A large set that covers is better than a smaller one behind many bytes: fewer tokens leave it.
    auto gain() const { return std::pair(gain_plain, gain_behind); }
  };
  Reach reach(Pushdown& automaton, Pushdown::State from);

  // Sets the bits of all tokens of the vocabulary that are allowed, of the set and others. all: every token.
  void add_allowed(Pushdown& automaton, Pushdown::State from, const Reach& reach, const TokenTrie& all,
                   std::span<uint32_t> mask) const;

  // The automaton has forgotten its states.
  void forget() { steps_.clear(); }
  size_t memory() const;

 private:
  using State = Pushdown::State;
  // One character of the set.
  struct Step {
    bool all = true, none = true;  // of the characters can follow
    std::vector<State> to;         // the states behind them, where all can
  };

  SetRun run(Pushdown& automaton, State from);
  const Step& step(Pushdown& automaton, State from);
  Step compute_step(Pushdown& automaton, State from) const;

  std::shared_ptr<const TokenSet> set_;
  std::vector<uint8_t> representatives_;  // one byte of each kind that neither the set nor the grammar tells apart
  std::unordered_map<State, Step> steps_;
};

}  // namespace millrace
