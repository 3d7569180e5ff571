// Schemas that list their values: enum and const, and what else is said of them.
#pragma once

#include "grammar/schema_document.h"

namespace millrace {

class RuleBuilder;

// const as a list of one.
Schema with_enum(Schema schema);

// The values that are in both lists.
Schema common_values(const Schema& a, const Schema& b);

// Listed values without those that are excepted; false where none is left.
Schema without_excepted(Schema schema);

// The values of enum or const that the other keywords allow. Only for schemas that have one of them.
// What that takes is counted against the bound of the grammar.
std::vector<Schema> allowed_values(const Schema& schema, RuleBuilder& builder);

}  // namespace millrace
