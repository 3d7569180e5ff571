#include "store/hub_cache.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

#include "base/ascii.h"
#include "base/error.h"
#include "store/hub_files.h"
#include "store/read_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool holds_all(std::span<const std::string> listing, std::span<const std::string> wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const std::string& file) { return std::binary_search(listing.begin(), listing.end(), file); });
}

bool has_tokenizer(std::span<const std::string> listing) {
  return std::any_of(listing.begin(), listing.end(), [](const std::string& file) {
    return file == "tokenizer.json" || file == "tokenizer.model" || file == "vocab.json";
  });
}

}  // namespace

std::vector<std::string> list_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code broken_link;
    if (it->is_regular_file(broken_link)) files.push_back(it->path().lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> hub_snapshots(const fs::path& hub_cache, const HubId& id) {
  const fs::path repository = hub_cache / ("models--" + id.owner + "--" + id.name);
  std::vector<fs::path> snapshots;
  std::error_code error;
  for (fs::directory_iterator it(repository / "snapshots", error), end; !error && it != end; it.increment(error)) {
    snapshots.push_back(it->path());
  }
  const std::string current(ascii_trim(read_file(repository / "refs" / "main")));
  std::sort(snapshots.begin(), snapshots.end());
  std::stable_partition(snapshots.begin(), snapshots.end(),
                        [&](const fs::path& snapshot) { return snapshot.filename() == current; });
  return snapshots;
}

std::optional<fs::path> complete_model_in(const fs::path& snapshot, const HubId& id) {
  const std::vector<std::string> listing = list_files(snapshot);
  if (listing.empty()) return std::nullopt;
  try {
    if (id.choice.empty() && is_model_folder(listing)) {
      const auto weights = folder_weights(listing, read_file(snapshot / kWeightsIndex));
      return holds_all(listing, weights) && has_tokenizer(listing) ? std::optional(snapshot) : std::nullopt;
    }
    const auto parts = gguf_parts(id.names_file() ? id.choice : choose_gguf(listing, id));
    if (holds_all(listing, parts)) return snapshot / parts.front();
  } catch (const Error&) {
    // Several files match. The hub's full listing may settle the choice.
  }
  return std::nullopt;
}

}  // namespace millrace
