// Regular expressions with lookarounds, word boundaries and inner anchors as text languages.
#pragma once

#include <string_view>

#include "grammar/pattern/regex.h"
#include "grammar/pattern/text_language.h"
#include "text/regex/syntax.h"

namespace millrace {

// Whether the pattern has assertions (^ and $ at the ends of alternatives are removed before), which rules alone cannot
// express.
bool needs_automaton(const RegexNode& node);

// Texts of which a part matches; for RegexUse::Answer, the whole text. Throws Usage.
TextLanguages::Id pattern_language(std::string_view regex, RegexUse use, TextLanguages& languages);

// Texts of which no part matches.
TextLanguages::Id avoided_language(std::string_view regex, TextLanguages& languages);

TextLanguages::Id length_language(Lengths lengths, TextLanguages& languages);

}  // namespace millrace
