// Lists the models in the cache, for `millrace models`.
#include <algorithm>

#include "store/hub.h"
#include "store/hub_cache.h"
#include "store/hub_files.h"
#include "store/layout.h"
#include "store/store.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

uint64_t bytes_of(const fs::path& file) {
  std::error_code missing;
  const auto bytes = fs::file_size(file, missing);
  return missing ? 0 : bytes;
}

uint64_t bytes_of_all(const fs::path& folder, const std::vector<std::string>& files) {
  uint64_t total = 0;
  for (const std::string& file : files) total += bytes_of(folder / file);
  return total;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void add_repository(const fs::path& folder, HubId id, std::vector<StoredModel>& models) {
  if (const auto snapshot = fetched_snapshot(folder)) {
    models.push_back({id.repository(), *snapshot, bytes_of_all(*snapshot, list_files(*snapshot))});
  }
  for (const std::string& file : gguf_choices(list_files(folder))) {
    id.choice = file;
    const auto path = complete_model_in(folder, id);
    if (path) models.push_back({id.repository() + ":" + file, *path, bytes_of_all(folder, gguf_parts(file))});
  }
}

}  // namespace

std::vector<StoredModel> stored_models(const FetchSettings& settings) {
  std::vector<StoredModel> models;
  for (const CatalogueEntry& entry : catalogue()) {
    const fs::path path = packaged_model_path(settings, entry);
    const bool packaged = entry.source == CatalogueEntry::Source::PackageIndex;
    if (packaged && bytes_of(path) == entry.bytes) models.push_back({std::string(entry.name), path, entry.bytes});
  }
  for (const fs::path& owner : entries_of(hub_models_folder(settings))) {
    for (const fs::path& repository : entries_of(owner)) {
      add_repository(repository, {owner.filename().string(), repository.filename().string(), ""}, models);
    }
  }
  return models;
}

}  // namespace millrace
