// Patterns with minLength and maxLength: the states of the pattern's automaton are paired with the number of characters
// so far.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/function_ref.h"
#include "grammar/pattern/regex.h"
#include "text/regex/syntax.h"

namespace millrace {

// The body of a rule; nullopt: no match has such a length. `character` makes the node of a set. Throws Usage if the
// automaton would be too large or the pattern has assertions.
std::optional<GrammarNode> counted_pattern_rule(const RegexNode& pattern, Lengths lengths,
                                                FunctionRef<GrammarNode(const CodeSet&)> character,
                                                RuleBuilder& builder);

// Whether the whole text matches. Throws like counted_pattern_rule().
bool pattern_matches(const RegexNode& pattern, std::span<const uint32_t> text, RuleBuilder& builder);

}  // namespace millrace
