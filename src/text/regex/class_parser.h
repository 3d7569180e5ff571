// The parts of a regex that name characters: [classes], \p{properties} and escapes.
#pragma once

#include <optional>

#include "text/regex/class_meaning.h"
#include "text/regex/pattern_reader.h"

namespace millrace {

// After the opening bracket.
CodeSet parse_class(PatternReader& in, const ClassMeaning& meaning);

// After a backslash: \d \s \w \p{...} and the like; nullopt, with nothing consumed: it is none of these.
std::optional<CodeSet> parse_set_escape(PatternReader& in, const ClassMeaning& meaning, bool in_class);

// After a backslash: one character, as itself or by number.
char32_t parse_character_escape(PatternReader& in);

}  // namespace millrace
