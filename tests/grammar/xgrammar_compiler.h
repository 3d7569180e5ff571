// Grammars by XGrammar, whose parser takes any recursion: for those that MaskAutomaton cannot follow.
#pragma once

#include <memory>
#include <string>

#include "grammar/automaton/token_vocabulary.h"
#include "grammar/compiled_grammar.h"

namespace millrace {

class XGrammarCompiler {
 public:
  explicit XGrammarCompiler(const TokenVocabulary& vocabulary);
  ~XGrammarCompiler();

  // Throws Usage where the grammar is wrong: before it is compiled, which takes long.
  static void parse(const std::string& ebnf);
  // One at a time.
  std::shared_ptr<CompiledGrammar> compile(const std::string& ebnf);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
