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

// The same for a name only: a file or folder of that name in the working directory is not looked at.
std::filesystem::path pull_model(const std::string& name, const std::function<bool()>& cancelled = {},
                                 const FetchSettings& settings = fetch_settings());

[[noreturn]] void fail_unknown_model(const std::string& model);

// Deletes a model, and what an interrupted fetch left of it, from the user's cache. Takes names only, never paths, and
// waits for a fetch of the same model. Returns the bytes that it freed. Throws NotFound if the cache has no such model.
uint64_t remove_model(const std::string& name, const std::function<bool()>& cancelled = {},
                      const FetchSettings& settings = fetch_settings());

struct StoredModel {
  std::string name;  // an argument for resolve_model
  std::filesystem::path path;
  uint64_t bytes;
};

// The models in the user's cache.
std::vector<StoredModel> stored_models(const FetchSettings& settings = fetch_settings());

}  // namespace millrace
