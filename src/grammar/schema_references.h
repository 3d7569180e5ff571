// References of a schema as places of its document: "item" or "#anchor" become "#/$defs/item", whatever $id they stand
// under. Also what drafts before the fourth say with "required": true.
#pragma once

#include "grammar/schema_document.h"

namespace millrace {

// References that lead outside of the document stay as they are.
void resolve_references(JsonSchema& root);

}  // namespace millrace
