// Rules for a text language: one for each state of its minimal automaton.
#pragma once

#include <cstddef>
#include <optional>

#include "base/function_ref.h"
#include "grammar/pattern/text_language.h"

namespace millrace {

// A reference to the rule for the texts; nullopt: there are none. `written` are the characters that the grammar may
// use, `character` makes the node of a set. Throws Usage if the automaton would be too large.
std::optional<GrammarNode> language_rule(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written,
                                         FunctionRef<GrammarNode(const CodeSet&)> character, RuleBuilder& builder);

bool has_text(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written);
// Number of states of its automaton.
size_t count_states(TextLanguages& languages, TextLanguages::Id language, const CodeSet& written);

}  // namespace millrace
