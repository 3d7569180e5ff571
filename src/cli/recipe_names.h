// The names that --type takes, for messages and help.
#pragma once

#include <string>

#include "formats/quantize_recipe.h"

namespace millrace {

inline std::string recipe_names() {
  std::string names;
  for (const auto& recipe : all_recipes()) names += (names.empty() ? "" : ", ") + std::string(recipe.name);
  return names;
}

}  // namespace millrace
