// The texts that a regular expression matches, with lookaheads, word boundaries and anchors anywhere.
#pragma once

#include <string_view>

#include "grammar/regex.h"
#include "grammar/text_language.h"
#include "text/regex/syntax.h"

namespace millrace {

// Whether it has assertions other than ^ and $ at the ends of its alternatives, so that only an automaton can say it.
bool needs_automaton(const RegexNode& node);

// Texts of which a part matches, or for answers the whole. Throws Usage.
TextLanguages::Id pattern_language(std::string_view regex, RegexUse use, TextLanguages& languages);

// Texts of which no part matches.
TextLanguages::Id avoided_language(std::string_view regex, TextLanguages& languages);

TextLanguages::Id length_language(Lengths lengths, TextLanguages& languages);

}  // namespace millrace
