// Where in the user's cache the store keeps what.
#pragma once

#include <filesystem>

#include "base/environment.h"
#include "store/catalogue.h"
#include "store/hub_id.h"

namespace millrace {

inline std::filesystem::path hub_models_folder(const Environment& env) { return env.cache / "models" / "hub"; }

inline std::filesystem::path repository_folder(const Environment& env, const HubId& id) {
  return hub_models_folder(env) / id.owner / id.name;
}

inline std::filesystem::path packaged_model_path(const Environment& env, const CatalogueEntry& entry) {
  return env.cache / "models" / entry.name / std::filesystem::path(entry.file).filename();
}

}  // namespace millrace
