// Schemas that list their values: enum and const, and what else is said of them.
#pragma once

#include "grammar/schema_document.h"

namespace millrace {

class RuleBuilder;

// const as a list of one.
JsonSchema with_enum(JsonSchema schema);

// The values that are in both lists.
JsonSchema common_values(const JsonSchema& a, const JsonSchema& b);

// Listed values without those that are excepted; false where none is left.
JsonSchema without_excepted(JsonSchema schema);

// The values of enum or const that the other keywords allow. Only for schemas that have one of them.
// What that takes is counted against the bound of the grammar.
std::vector<JsonSchema> allowed_values(const JsonSchema& schema, RuleBuilder& builder);

}  // namespace millrace
