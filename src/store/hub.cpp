#include "store/hub.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_text.h"
#include "store/download.h"
#include "store/hub_cache.h"
#include "store/hub_files.h"
#include "store/read_file.h"
#include "store/retry.h"
#include "store/safe_path.h"
#include "store/url.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestListing = 64 << 20;
constexpr const char* kComplete = ".complete";  // marks a snapshot with all files in place

struct Listing {
  std::string commit;  // "main" if the hub reports none
  std::vector<std::string> files;
};

Listing parse_listing(const std::string& text, const HubId& id) {
  const auto json = read_json(text);
  if (!json.is_object() || !json.contains("siblings") || !json["siblings"].is_array()) {
    fail(ErrorKind::Network, "{}: the hub's answer is no list of files", id.repository());
  }
  Listing listing{"main", {}};
  if (json.contains("sha") && json["sha"].is_string()) listing.commit = json["sha"];
  if (!is_safe_relative_path(listing.commit) || listing.commit.find('/') != std::string::npos) {
    fail(ErrorKind::Network, "{}: the hub names a commit that cannot be", id.repository());
  }
  for (const auto& sibling : json["siblings"]) {
    if (!sibling.is_object() || !sibling.contains("rfilename") || !sibling["rfilename"].is_string()) continue;
    const std::string name = sibling["rfilename"];
    if (is_safe_relative_path(name)) listing.files.push_back(name);  // skips .gitattributes, ...
  }
  return listing;
}

class Hub {
 public:
  Hub(const HubId& id, const FetchSettings& settings, const std::function<bool()>& cancelled)
      : id_(id),
        url_(settings.hf_endpoint),
        client_(client_options(settings, cancelled)),
        progress_(settings.progress) {
    while (url_.ends_with('/')) url_.pop_back();
  }

  Listing list() {
    HttpClient::Page page;
    with_retries(
        client_.options().cancelled, [] { return uint64_t{0}; },
        [&] { page = client_.get_page(url_ + "/api/models/" + id_.repository(), {}, kLongestListing); });
    return parse_listing(page.text, id_);
  }

  // Returns the commit of the file; empty if the hub reports none.
  std::string fetch(const std::string& file, const fs::path& folder) {
    const std::string url = url_ + "/" + id_.repository() + "/resolve/main/" + escape_path(file);
    return download(client_, {url, folder / file, "fetching " + file, std::nullopt, "", progress_})
        .header("x-repo-commit");
  }

 private:
  static HttpOptions client_options(const FetchSettings& settings, const std::function<bool()>& cancelled) {
    HttpOptions options;
    options.ca_file = settings.ca_file;
    options.ca_folder = settings.ca_folder;
    options.patience_s = settings.patience_s;
    options.bearer_token = settings.hf_token;
    options.secret_origin = url_origin(settings.hf_endpoint);
    options.cancelled = cancelled;
    return options;
  }

  const HubId& id_;
  std::string url_;
  HttpClient client_;
  const FetchProgress& progress_;
};

fs::path fetch_gguf(Hub& hub, const std::string& file, const fs::path& folder) {
  const std::vector<std::string> parts = gguf_parts(file);
  for (const std::string& part : parts) {
    if (!fs::exists(folder / part)) hub.fetch(part, folder);
  }
  return folder / parts.front();
}

fs::path fetch_folder(Hub& hub, const HubId& id, const Listing& listing, const fs::path& folder) {
  const fs::path snapshot = folder / ("snapshot-" + listing.commit);
  const auto fetch_all = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      if (fs::exists(snapshot / file)) continue;
      const std::string commit = hub.fetch(file, snapshot);
      if (!commit.empty() && listing.commit != "main" && commit != listing.commit) {
        fs::remove(snapshot / file);
        fail(ErrorKind::Network, "{} changed on the hub while it was fetched; run it again", id.repository());
      }
    }
  };
  fetch_all(folder_companions(listing.files));
  fetch_all(folder_weights(listing.files, read_file(snapshot / kWeightsIndex)));
  std::ofstream(snapshot / kComplete).flush();
  return snapshot;
}

[[noreturn]] void explain_status(const HttpStatusError& e, const HubId& id, const FetchSettings& settings) {
  const std::string endpoint = printable_url(settings.hf_endpoint);
  if (e.status() == 404) {
    fail(ErrorKind::NotFound, "{}: {} has no such repository or file (404)",
         id.choice.empty() ? id.repository() : id.repository() + ":" + id.choice, endpoint);
  }
  if (e.status() == 401 || e.status() == 403) {
    fail(ErrorKind::Network, "{}: {} refuses it ({}): {}", id.repository(), endpoint, e.status(),
         settings.hf_token.empty() ? "it is private, gated or not there; if you have access, set HF_TOKEN"
                                   : "your token does not open it; accept the model's terms on its page first");
  }
  fail(ErrorKind::Network, "{}: {}", id.repository(), e.what());
}

}  // namespace

std::optional<fs::path> fetched_snapshot(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code missing;
    if (fs::exists(it->path() / kComplete, missing)) return it->path();
  }
  return std::nullopt;
}

std::optional<fs::path> fetched_from_hub(const HubId& id, const fs::path& folder) {
  if (id.choice.empty()) {
    if (const auto snapshot = fetched_snapshot(folder)) return snapshot;
  }
  return complete_model_in(folder, id);
}

fs::path fetch_from_hub(const HubId& id, const fs::path& folder, const FetchSettings& settings,
                        const std::function<bool()>& cancelled) {
  if (settings.hf_offline) {
    fail(ErrorKind::NotFound, "{} is not in the cache, and HF_HUB_OFFLINE forbids to fetch it", id.repository());
  }
  try {
    Hub hub(id, settings, cancelled);
    if (id.names_file()) return fetch_gguf(hub, id.choice, folder);
    const Listing listing = hub.list();
    if (id.choice.empty() && is_model_folder(listing.files)) return fetch_folder(hub, id, listing, folder);
    return fetch_gguf(hub, choose_gguf(listing.files, id), folder);
  } catch (const HttpStatusError& e) {
    explain_status(e, id, settings);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Network) throw;
    fail(ErrorKind::Network, "cannot fetch {}: {} (no network? give a file instead, or a mirror in HF_ENDPOINT)",
         id.repository(), e.what());
  }
}

}  // namespace millrace
