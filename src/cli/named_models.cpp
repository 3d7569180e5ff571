#include "cli/named_models.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "base/error.h"
#include "store/catalogue.h"
#include "store/hub_files.h"
#include "store/hub_id.h"
#include "store/store.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool is_model_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error) || fs::exists(folder / "tokenizer.json", error);
}

// The models directly in a folder, by name. Later parts of split GGUF files and vision projectors are no models.
std::vector<std::string> models_in(const fs::path& folder) {
  std::vector<std::string> found, files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".gguf") files.push_back(it->path().filename().string());
    if (it->is_directory(error) && is_model_folder(it->path())) found.push_back(it->path().string());
  }
  for (const std::string& file : gguf_choices(files)) found.push_back((folder / file).string());
  std::sort(found.begin(), found.end());
  return found;
}

// The name of a file or folder: "models/smollm2-135m.Q4_K_M.gguf" is "smollm2-135m.Q4_K_M", the first file of a split
// model has the name of the whole, and "." that of the folder.
std::string name_of_path(const fs::path& given) {
  std::error_code unknown;
  fs::path path = fs::absolute(given, unknown).lexically_normal();  // a link has its own name
  if (!path.has_filename()) path = path.parent_path();
  if (path.extension() != ".gguf") return path.filename().string();
  return std::regex_replace(path.stem().string(), std::regex("-[0-9]{5}-of-[0-9]{5}$"), "");
}

// Models with a short name have that one, also if they were asked for as "default".
std::vector<std::string> default_names(const std::string& model) {
  const CatalogueEntry* entry = find_in_catalogue(model);
  if (entry != nullptr && entry->name != model) return {std::string(entry->name), model};
  std::error_code missing;
  if (fs::exists(model, missing)) return {name_of_path(model)};
  if (model.find('/') == std::string::npos) return {model};
  return {name_of_path(model), model};  // owner/name of the hub
}

std::vector<std::string> expand(const std::string& model) {
  std::error_code error;
  if (!fs::is_directory(model, error) || is_model_folder(model)) return {model};
  const auto found = models_in(model);
  if (found.empty()) {
    fail(ErrorKind::NotFound, "{}: the folder is no model (no config.json) and holds no GGUF file or model folder",
         model);
  }
  return found;
}

void require_known(const std::string& model) {
  std::error_code error;
  if (model.starts_with("synthetic:") || fs::exists(model, error) || find_in_catalogue(model) || parse_hub_id(model)) {
    return;
  }
  fail_unknown_model(model);
}

}  // namespace

std::vector<NamedModel> named_models(std::vector<std::string> given, const std::vector<std::string>& names) {
  if (given.empty()) given = {"default"};
  std::vector<NamedModel> models;
  for (const std::string& one : given) {
    for (const std::string& model : expand(one)) models.push_back({model, default_names(model)});
  }
  if (models.size() == 1) {
    if (!names.empty()) models[0].names = names;
    return models;
  }
  if (!names.empty() && names.size() != models.size()) {
    fail(ErrorKind::Usage, "--served-model-name is given {} times for {} models: give one name for each", names.size(),
         models.size());
  }
  std::set<std::string> taken;
  for (size_t i = 0; i < models.size(); ++i) {
    require_known(models[i].model);
    if (!names.empty()) models[i].names = {names[i]};
    for (const std::string& name : models[i].names) {
      if (taken.insert(name).second) continue;
      fail(ErrorKind::Usage, "two models are called {}: give each a name with --served-model-name", name);
    }
  }
  return models;
}

}  // namespace millrace
