// Fetches models from the Hugging Face hub or from a mirror with the same API.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "store/fetch_settings.h"
#include "store/hub_id.h"

namespace millrace {

// `folder` is the store's folder of one repository. It holds GGUF files directly and a Hugging Face folder as
// snapshot-COMMIT. Returns the completely fetched snapshot, if any.
std::optional<std::filesystem::path> fetched_snapshot(const std::filesystem::path& folder);

// Returns the path of the model if an earlier fetch completed it.
std::optional<std::filesystem::path> fetched_from_hub(const HubId& id, const std::filesystem::path& folder);

// Fetches the model into `folder`; the caller holds the folder's lock. Returns the first part of a GGUF model, or a
// folder.
std::filesystem::path fetch_from_hub(const HubId& id, const std::filesystem::path& folder,
                                     const FetchSettings& settings, const std::function<bool()>& cancelled);

}  // namespace millrace
