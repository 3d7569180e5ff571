// The rules that a GrammarSpec becomes.
#pragma once

#include <string>

#include "grammar/grammar_spec.h"
#include "grammar/rules.h"

namespace millrace {

// Throws Usage where the grammar is wrong, cannot be enforced or is too large.
GrammarRules rules_of(const GrammarSpec& spec);

// The same as text, for tests and for people.
std::string grammar_to_ebnf(const GrammarSpec& spec);

}  // namespace millrace
