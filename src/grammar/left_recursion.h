// Rules that call themselves, perhaps through others, before they have taken a byte: a pushdown automaton would call
// for ever.
#pragma once

#include "grammar/grammar_program.h"

namespace millrace {

bool left_recursive(const GrammarProgram& program);

// A program of the same texts that is not: what such rules begin with comes first, then what may follow it, over and
// over.   a ::= b "x" | "y"   b ::= a "z" | "w"   becomes   a ::= ("y" | "w" "x") ("z" "x")*
// Throws Usage where it grows too large.
GrammarProgram without_left_recursion(const GrammarProgram& program);

}  // namespace millrace
