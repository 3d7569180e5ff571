// The types that keywords apply to.
#pragma once

#include "grammar/schema/schema_document.h"

namespace millrace {

// Keywords without effect on validity.
bool is_annotation(const std::string& keyword);

// The type that a keyword applies to; empty: all types.
std::string_view type_spoken_of(const std::string& keyword);

// The types that the grammar allows for a schema without combinators: those in `type`, else those that its keywords
// apply to, else all seven.
std::vector<std::string> schema_types(const JsonSchema& schema);

}  // namespace millrace
