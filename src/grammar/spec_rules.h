// Builds the rules of a GrammarSpec.
#pragma once

#include <string>

#include "grammar/grammar_spec.h"
#include "grammar/rules.h"

namespace millrace {

// Throws Usage if the grammar is malformed, cannot be enforced or is too large.
GrammarRules rules_of(const GrammarSpec& spec);

// The rules as text, for tests and for people.
std::string grammar_to_ebnf(const GrammarSpec& spec);

}  // namespace millrace
