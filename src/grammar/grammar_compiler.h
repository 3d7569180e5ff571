// Compiles grammars for the vocabulary of one model, and caches them (LRU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/grammar_spec.h"
#include "grammar/triggered.h"
#include "sampling/constraint.h"

namespace millrace {

struct GrammarVocabulary {
  std::vector<std::string> tokens;  // the bytes of each id in a text; empty: never allowed (special tokens, unused ids)
  std::vector<int32_t> end_tokens;  // allowed exactly where the text may end; generation stops there
};

// Thread-safe. One grammar is compiled at a time.
class GrammarCompiler {
 public:
  // `cached_bytes` bounds the memory of cached grammars.
  explicit GrammarCompiler(GrammarVocabulary vocabulary, size_t cached_bytes = 256 << 20);
  ~GrammarCompiler();

  // A new constraint for one sequence. Throws Usage if the grammar is malformed, cannot be enforced or is too large.
  std::unique_ptr<Constraint> compile(const GrammarSpec& spec);
  // The same for a grammar that applies from a trigger on.
  std::unique_ptr<Constraint> compile(const GrammarSpec& spec, GrammarTrigger trigger);

  struct Stats {
    uint64_t hits = 0, misses = 0;
    size_t kept = 0, bytes = 0;
  };
  Stats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
