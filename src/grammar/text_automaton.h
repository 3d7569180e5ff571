// A set of texts as rules of a grammar: one for each state of its smallest automaton.
#pragma once

#include <cstddef>
#include <optional>

#include "base/function_ref.h"
#include "grammar/text_language.h"

namespace millrace {

// What stands for one of the texts in a rule; nothing: there is none. `written` has the characters that can be written,
// `character` writes one of a set. Throws Usage where the automaton would be too large.
std::optional<GrammarNode> language_rule(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written,
                                         FunctionRef<GrammarNode(const CodeSet&)> character, RuleBuilder& builder);

bool has_text(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written);
// How many states its automaton has.
size_t count_states(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written);

}  // namespace millrace
