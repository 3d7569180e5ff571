// The adapters of `millrace serve`: --lora [MODEL:]NAME=PATH.
#pragma once

#include <string>
#include <vector>

#include "cli/named_models.h"
#include "server/adapter_list.h"

namespace millrace {

// With several models, each argument begins with the name of the one that its adapter changes. Throws Usage for a name
// that is given twice or belongs to a model: requests choose both by the same field.
std::vector<ServedAdapter> served_adapters(const std::vector<std::string>& loras,
                                           const std::vector<NamedModel>& models);

}  // namespace millrace
