// Rules for JSON Schema. Every keyword is enforced exactly or refused with its place in the schema: an answer that
// follows the grammar validates against the schema. The grammar may allow less than the schema: members come in the
// order of `properties`, an object with `properties` has no others unless additionalProperties is given, and white
// space is bounded.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace millrace {

// Adds the rules for the values of the schema. Throws Usage.
GrammarNode schema_rule(std::string_view schema, RuleBuilder& builder);

// Any JSON object.
GrammarNode any_object_rule(RuleBuilder& builder);

}  // namespace millrace
