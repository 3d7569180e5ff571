// Deletes models from the cache, for `millrace rm`.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "store/file_lock.h"
#include "store/hub.h"
#include "store/hub_files.h"
#include "store/layout.h"
#include "store/store.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";

struct Stored {
  fs::path folder;           // holds the lock of the model
  std::vector<fs::path> of;  // files and folders to delete; some may not exist
};

std::vector<fs::path> entries_but_lock(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != kLock) found.push_back(it->path());
  }
  return found;
}

Stored stored_from_hub(const HubId& id, const FetchSettings& settings) {
  Stored stored{repository_folder(settings, id), {}};
  if (id.choice.empty()) {  // all that was fetched from the repository
    stored.of = entries_but_lock(stored.folder);
    return stored;
  }
  if (!id.names_file()) {
    fail(ErrorKind::Usage, "{}:{}: name the file, as `millrace models` lists it", id.repository(), id.choice);
  }
  for (const std::string& part : gguf_parts(id.choice)) {
    for (const char* suffix : {"", ".part", ".part.etag"}) stored.of.push_back(stored.folder / (part + suffix));
  }
  return stored;
}

Stored find_stored(const std::string& name, const FetchSettings& settings) {
  if (const CatalogueEntry* entry = find_in_catalogue(name)) {
    if (entry->source == CatalogueEntry::Source::Hub) {
      return stored_from_hub(*parse_hub_id(fmt::format("{}:{}", entry->from, entry->file)), settings);
    }
    const fs::path folder = packaged_model_path(settings, *entry).parent_path();
    return {folder, entries_but_lock(folder)};
  }
  if (const auto id = parse_hub_id(name)) return stored_from_hub(*id, settings);
  fail(ErrorKind::Usage, "{} is no name of a model in the cache (see `millrace models`); rm deletes no other files",
       name);
}

// Deleting through a link would reach files that the store did not write.
void require_inside(const fs::path& folder, const FetchSettings& settings) {
  const fs::path root = fs::weakly_canonical(settings.cache / "models"), real = fs::weakly_canonical(folder);
  const auto [end, at] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (end != root.end() || at == real.end()) {
    fail(ErrorKind::Usage, "{} leads out of the cache, to {}; nothing is deleted", folder.string(), real.string());
  }
}

uint64_t bytes_below(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(path, error))) return fs::file_size(path, error);
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    if (fs::is_regular_file(it->symlink_status(unknown))) bytes += it->file_size(unknown);
  }
  return bytes;
}

}  // namespace

uint64_t remove_model(const std::string& name, const std::function<bool()>& cancelled, const FetchSettings& settings) {
  const fs::path folder = find_stored(name, settings).folder;
  std::error_code missing;
  if (!fs::is_directory(folder, missing)) fail(ErrorKind::NotFound, "{} is not in the cache", name);
  require_inside(folder, settings);
  const auto waiting = [&] { log().warn("another process is fetching {}; waiting for it", name); };
  const FileLock lock(folder / kLock, waiting, cancelled);
  uint64_t bytes = 0, removed = 0;
  for (const fs::path& path : find_stored(name, settings).of) {
    bytes += bytes_below(path);
    std::error_code error;
    removed += fs::remove_all(path, error);  // a link itself, not its target
    if (error) fail(ErrorKind::Io, "cannot delete {}: {}", path.string(), error.message());
  }
  if (removed == 0) fail(ErrorKind::NotFound, "{} is not in the cache", name);
  return bytes;
}

}  // namespace millrace
