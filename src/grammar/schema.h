// JSON Schema as rules of a grammar. Whatever a schema says is held to exactly or refused with its place: an answer
// that follows the grammar validates against the schema. The grammar may allow less than the schema where that changes
// nothing for a reader: members come in the order of `properties`, an object that lists properties has no others unless
// additionalProperties says so, and space is bounded.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace millrace {

// Adds the rules for a JSON value that the schema describes and returns what stands for it. Throws Usage.
GrammarNode schema_rule(std::string_view schema, RuleBuilder& builder);

// Any JSON object.
GrammarNode any_object_rule(RuleBuilder& builder);

}  // namespace millrace
