// The token masks of one grammar. All sequences with this grammar share its states and masks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/grammar_program.h"
#include "grammar/automaton/pushdown.h"
#include "grammar/automaton/set_reach.h"
#include "grammar/automaton/token_vocabulary.h"
#include "grammar/compiled_grammar.h"

namespace millrace {

class MaskAutomaton : public CompiledGrammar, public std::enable_shared_from_this<MaskAutomaton> {
 public:
  // Throws Pushdown::TooComplex, and Usage if the grammar allows no text.
  MaskAutomaton(GrammarProgram program, std::shared_ptr<TokenVocabulary> vocabulary);

  // Computes the masks of likely states for some milliseconds ahead of the first request. Throws TooComplex if masks
  // would take too long.
  void rehearse();

  std::unique_ptr<TextConstraint> follow() override;
  size_t memory() const override;

 private:
  class Follower;
  using State = Pushdown::State;

  // The rest needs lock_ held. States are dropped when they take too much memory; `round_` counts how often.
  const std::vector<uint32_t>& mask_of(State state);
  std::vector<uint32_t> compute_mask(State state);
  const std::vector<uint32_t>& keep_mask(State state, std::vector<uint32_t> mask);
  State advance(State state, std::string_view bytes);
  void forget_if_large();

  std::shared_ptr<TokenVocabulary> vocabulary_;

  mutable std::mutex lock_;
  Pushdown pushdown_;
  std::vector<SetReach> sets_;
  std::unordered_map<State, std::vector<uint32_t>> masks_;
  size_t most_bytes_;
  uint64_t round_ = 1;
};

}  // namespace millrace
