// Regular expressions as JSON Schema and clients write them (ECMA-262 without what no grammar can say), as rules of a
// grammar. Nothing is approximated: what cannot be said exactly is refused.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/rules.h"

namespace millrace {

enum class RegexUse : uint8_t {
  Answer,      // the whole text matches, as it is
  JsonString,  // what stands between the quotes of a JSON string: a part of it matches, unless ^ and $ say more
};

struct Lengths {  // of the texts that match, in characters
  int64_t least = 0;
  int64_t most = -1;  // -1: without end
};

// The body of a rule; nullopt: no text matches. Texts that match and whose length is outside of `lengths` are kept out;
// where that is not possible, it is refused. Throws Usage with the position of what is wrong.
std::optional<GrammarNode> regex_rule(std::string_view regex, RegexUse use, Lengths lengths, RuleBuilder& builder);

// Whether a part of the text matches, as JSON Schema's `pattern` asks. What that takes is counted against the bound of
// the grammar. Throws Usage.
bool regex_matches(std::string_view regex, std::string_view text, RuleBuilder& builder);

// One character of the set inside of a JSON string: as it is, or escaped where JSON wants that.
GrammarNode json_character(const CodeSet& characters);
// Every character.
CodeSet any_character();

}  // namespace millrace
