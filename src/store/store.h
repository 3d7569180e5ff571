// Turns the name of a model into a local path and fetches the model if necessary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/fetch_settings.h"

namespace millrace {

// `model` is a file or folder (returned unchanged, like "synthetic:..."), a name in the catalogue, or a Hugging Face
// id: owner/name, owner/name:file.gguf, owner/name:Q4_K_M. Fetched models stay in the user's cache. A fetch polls
// `cancelled` and throws Cancelled when it returns true; the next fetch resumes.
std::filesystem::path resolve_model(const std::string& model, const std::function<bool()>& cancelled = {},
                                    const FetchSettings& settings = fetch_settings());

struct StoredModel {
  std::string name;  // an argument for resolve_model
  std::filesystem::path path;
  uint64_t bytes;
};

// The models in the user's cache.
std::vector<StoredModel> stored_models(const FetchSettings& settings = fetch_settings());

}  // namespace millrace
