// Left recursion: rules that call themselves, directly or through others, before they take a byte. The pushdown
// automaton would not terminate on them.
#pragma once

#include "grammar/automaton/grammar_program.h"

namespace millrace {

bool left_recursive(const GrammarProgram& program);

// An equivalent program without left recursion: the non-recursive beginnings come first, then any number of
// continuations. Throws Usage if it grows too large.
//   a ::= b "x" | "y"   b ::= a "z" | "w"   becomes   a ::= ("y" | "w" "x") ("z" "x")*
GrammarProgram without_left_recursion(const GrammarProgram& program);

}  // namespace millrace
