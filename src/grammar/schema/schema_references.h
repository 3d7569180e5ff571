// Rewrites references of a schema as JSON pointers into its document: "item" or "#anchor" become "#/$defs/item",
// resolved against the enclosing $id. Also rewrites "required": true of drafts before 4.
#pragma once

#include "grammar/schema/schema_document.h"

namespace millrace {

// References to other documents stay unchanged.
void resolve_references(JsonSchema& root);

}  // namespace millrace
