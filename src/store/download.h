// Downloads one file: resumes an earlier attempt, verifies the bytes, then moves the file into place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "store/fetch_settings.h"
#include "store/http.h"

namespace millrace {

struct Download {
  std::string url;
  std::filesystem::path target;
  std::string label;              // shown by the progress bar
  std::optional<uint64_t> bytes;  // expected size, if known
  std::string sha256;             // expected checksum, if known; else the hub's x-linked-etag header is used
  FetchProgress progress = {};    // empty: a progress bar
};

// The caller holds the lock of the target's folder. Throws HttpStatusError, Network, Io, or BadFile if size or checksum
// differ; the downloaded part is then deleted. Returns the head of the response that completed the file.
HttpHead download(HttpClient& client, const Download& what);

}  // namespace millrace
