// Paths of the store inside the user's cache.
#pragma once

#include <filesystem>

#include "store/catalogue.h"
#include "store/fetch_settings.h"
#include "store/hub_id.h"

namespace millrace {

inline std::filesystem::path hub_models_folder(const FetchSettings& settings) {
  return settings.cache / "models" / "hub";
}

inline std::filesystem::path repository_folder(const FetchSettings& settings, const HubId& id) {
  return hub_models_folder(settings) / id.owner / id.name;
}

inline std::filesystem::path packaged_model_path(const FetchSettings& settings, const CatalogueEntry& entry) {
  const std::filesystem::path file(entry.saved_as.empty() ? entry.file : entry.saved_as);
  return settings.cache / "models" / entry.name / file.filename();
}

}  // namespace millrace
