// What the keywords of a schema speak of.
#pragma once

#include "grammar/schema_document.h"

namespace millrace {

// Keywords that say nothing about which values are valid.
bool is_annotation(const std::string& keyword);

// The type that a keyword says something about; empty: all of them.
std::string_view type_spoken_of(const std::string& keyword);

// The types that a schema without combinators allows: those it names, else those its keywords speak of, else all seven.
std::vector<std::string> schema_types(const JsonSchema& schema);

}  // namespace millrace
