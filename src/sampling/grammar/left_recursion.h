// Rules that call themselves before they have taken a byte: a pushdown automaton would call for ever.
#pragma once

#include "sampling/grammar/ebnf_parser.h"
#include "sampling/grammar/grammar_program.h"

namespace millrace {

// list ::= list "," item | item   becomes   list ::= item ("," item)*
void unroll_left_recursion(EbnfRules& rules);

// Whether some is left, through other rules for example.
bool left_recursive(const GrammarProgram& program);

}  // namespace millrace
