// The models of `millrace serve` and their names for clients.
#pragma once

#include <string>
#include <vector>

namespace millrace {

struct NamedModel {
  std::string model;               // an argument for open_model()
  std::vector<std::string> names;  // the first is its id
};

// `given`: the arguments of -m; none: the default model. A folder that is no model itself stands for the GGUF files and
// Hugging Face folders in it. `names`: of --served-model-name; all for the only model, or one for each of several.
// Throws Usage for arguments that are neither files nor known names, and for two models of one name.
std::vector<NamedModel> named_models(std::vector<std::string> given, const std::vector<std::string>& names);

}  // namespace millrace
