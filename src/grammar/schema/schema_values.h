// Schemas with enum or const.
#pragma once

#include "grammar/schema/schema_document.h"

namespace millrace {

class RuleBuilder;

// Rewrites const as an enum of one value.
JsonSchema with_enum(JsonSchema schema);

// The values that are in both lists.
JsonSchema common_values(const JsonSchema& a, const JsonSchema& b);

// Removes the values of $except from the enum; the schema `false` if none is left.
JsonSchema without_excepted(JsonSchema schema);

// The values of enum or const that the other keywords allow. The schema must have enum or const. The work counts
// against the builder's bound.
std::vector<JsonSchema> allowed_values(const JsonSchema& schema, RuleBuilder& builder);

}  // namespace millrace
