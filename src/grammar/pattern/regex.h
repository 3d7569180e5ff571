// Rules for regular expressions in the Ecma dialect (text/regex/syntax.h). Patterns that the rules cannot express
// exactly are refused.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/rules.h"

namespace millrace {

enum class RegexUse : uint8_t {
  Answer,      // the whole text matches
  JsonString,  // the text between the quotes of a JSON string; a part of it matches, unless anchored
};

struct Lengths {  // of the texts that match, in characters
  int64_t least = 0;
  int64_t most = -1;  // -1: unbounded
};

// The body of a rule for matches whose length is within `lengths`; nullopt: there are none. Throws Usage if the pattern
// is malformed or cannot be enforced.
std::optional<GrammarNode> regex_rule(std::string_view regex, RegexUse use, Lengths lengths, RuleBuilder& builder);

// Whether a part of the text matches, as in JSON Schema's `pattern`. The work counts against the builder's bound.
// Throws Usage.
bool regex_matches(std::string_view regex, std::string_view text, RuleBuilder& builder);

// One character of the set inside of a JSON string, escaped where JSON requires it.
GrammarNode json_character(const CodeSet& characters);
CodeSet any_character();

}  // namespace millrace
