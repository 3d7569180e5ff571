// From what a person calls a model to a path on this machine, fetching it where need be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"

namespace millrace {

// MODEL is a file or a folder (returned as it is, as is "synthetic:..."), a name of the catalogue, or a Hugging Face
// id: owner/name, owner/name:file.gguf, owner/name:Q4_K_M. What has to be fetched is kept in the user's cache and found
// there from then on. `cancelled` is asked now and then; true ends a fetch with Cancelled, to be resumed later.
std::filesystem::path resolve_model(const std::string& model, const std::function<bool()>& cancelled = {},
                                    const Environment& env = environment());

struct StoredModel {
  std::string name;  // as resolve_model takes it
  std::filesystem::path path;
  uint64_t bytes;
};

// What has been fetched into the user's cache.
std::vector<StoredModel> stored_models(const Environment& env = environment());

}  // namespace millrace
