// The parts of a regex that name characters: [classes], \p{properties} and escapes.
#pragma once

#include <optional>

#include "text/regex/pattern_reader.h"
#include "text/unicode/code_set.h"

namespace millrace {

// After the opening bracket.
CodeSet parse_class(PatternReader& in, bool ignore_case);

// After a backslash: \d \s \w \h \p{...} and their opposites; nullopt, nothing consumed, when it is none of these.
std::optional<CodeSet> parse_set_escape(PatternReader& in, bool in_class);

// After a backslash: one character, as itself or by number.
char32_t parse_character_escape(PatternReader& in);

}  // namespace millrace
