// Texts that match a pattern and have a length between bounds: the automaton of the pattern, with the characters so far
// counted beside its state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/function_ref.h"
#include "grammar/regex.h"
#include "text/regex/syntax.h"

namespace millrace {

// The body of a rule; `character` writes one of a set. Empty: no match has such a length. Throws Usage where the
// automaton would be too large, and where the pattern has anchors inside.
std::optional<GrammarNode> counted_pattern_rule(const RegexNode& pattern, Lengths lengths,
                                                FunctionRef<GrammarNode(const CodeSet&)> character,
                                                RuleBuilder& builder);

// Whether the whole text matches. Throws like the above.
bool pattern_matches(const RegexNode& pattern, std::span<const uint32_t> text, RuleBuilder& builder);

}  // namespace millrace
