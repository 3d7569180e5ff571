// Fetches one file: resumed where an earlier attempt stopped, verified, and only then put in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "store/http.h"

namespace millrace {

struct Download {
  std::string url;
  std::filesystem::path target;
  std::string label;              // what the progress bar calls it
  std::optional<uint64_t> bytes;  // what must come, where it is known beforehand
  std::string sha256;             // likewise; else the hub's own word (x-linked-etag) is taken
};

// The caller holds the lock of the target's folder. Throws HttpStatusError, Network, Io, or BadFile where the content
// is not what it should be (what came is then deleted). Returns the head of the answer that completed the file.
HttpHead download(HttpClient& client, const Download& what);

}  // namespace millrace
