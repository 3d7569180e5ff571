#include "grammar/grammar_compiler.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "grammar/automaton/mask_automaton.h"
#include "grammar/distinct_names.h"
#include "grammar/spec_rules.h"

namespace millrace {

struct GrammarCompiler::State {
  struct Entry {
    GrammarSpec spec;
    std::shared_ptr<CompiledGrammar> grammar;
  };

  State(GrammarVocabulary given, size_t limit)
      : vocabulary(std::make_shared<TokenVocabulary>(std::move(given.tokens), std::move(given.end_tokens))),
        limit(limit) {}

  std::shared_ptr<CompiledGrammar> find(const GrammarSpec& spec);
  std::shared_ptr<CompiledGrammar> compile(const GrammarRules& rules);
  std::shared_ptr<CompiledGrammar> find_or_compile(const GrammarSpec& spec);
  std::unique_ptr<TextConstraint> follow(const GrammarSpec& spec);
  void keep(const GrammarSpec& spec, std::shared_ptr<CompiledGrammar> grammar);

  std::shared_ptr<TokenVocabulary> vocabulary;
  size_t limit;

  mutable std::mutex lock;   // guards the members below
  std::list<Entry> entries;  // most recently used first
  Stats stats;

  std::mutex compiling;
};

std::shared_ptr<CompiledGrammar> GrammarCompiler::State::find(const GrammarSpec& spec) {
  const std::lock_guard guard(lock);
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.spec == spec; });
  if (found == entries.end()) return nullptr;
  ++stats.hits;
  entries.splice(entries.begin(), entries, found);
  return found->grammar;
}

std::shared_ptr<CompiledGrammar> GrammarCompiler::State::compile(const GrammarRules& rules) {
  try {
    auto automaton = std::make_shared<MaskAutomaton>(compile_program(rules), vocabulary);
    automaton->rehearse();
    return automaton;
  } catch (const Pushdown::TooComplex&) {
    fail(ErrorKind::Usage,
         "the grammar is too ambiguous to be followed quickly: its choices and repetitions begin too much alike");
  }
}

// Grammars grow in use, so the memory of all is summed again.
void GrammarCompiler::State::keep(const GrammarSpec& spec, std::shared_ptr<CompiledGrammar> grammar) {
  const std::lock_guard guard(lock);
  ++stats.misses;
  entries.push_front({spec, std::move(grammar)});
  size_t bytes = 0;
  for (auto entry = entries.begin(); entry != entries.end();) {
    const size_t more = entry->grammar->memory() + entry->spec.text.size();
    const bool fits = entry == entries.begin() || bytes + more <= limit;
    if (fits) bytes += more;
    entry = fits ? std::next(entry) : entries.erase(entry);
  }
  stats.bytes = bytes;
  stats.kept = entries.size();
}

GrammarCompiler::GrammarCompiler(GrammarVocabulary vocabulary, size_t cached_bytes)
    : state_(std::make_unique<State>(std::move(vocabulary), cached_bytes)) {}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<CompiledGrammar> GrammarCompiler::State::find_or_compile(const GrammarSpec& spec) {
  if (auto known = find(spec)) return known;
  const GrammarRules rules = rules_of(spec);
  const std::lock_guard one_at_a_time(compiling);
  if (auto meanwhile = find(spec)) return meanwhile;
  std::shared_ptr<CompiledGrammar> grammar = compile(rules);
  keep(spec, grammar);
  return grammar;
}

std::unique_ptr<TextConstraint> GrammarCompiler::State::follow(const GrammarSpec& spec) {
  std::unique_ptr<TextConstraint> grammar = find_or_compile(spec)->follow();
  const bool free_text = spec.kind == GrammarSpec::Kind::Regex || spec.kind == GrammarSpec::Kind::Ebnf;
  return free_text ? std::move(grammar) : make_distinct_names(std::move(grammar), vocabulary);
}

std::unique_ptr<Constraint> GrammarCompiler::compile(const GrammarSpec& spec) { return state_->follow(spec); }

std::unique_ptr<Constraint> GrammarCompiler::compile(const GrammarSpec& spec, GrammarTrigger trigger) {
  return make_triggered_constraint(std::move(trigger), state_->vocabulary, state_->follow(spec));
}

GrammarCompiler::Stats GrammarCompiler::stats() const {
  const std::lock_guard guard(state_->lock);
  return state_->stats;
}

}  // namespace millrace
