// Fetches models from the Hugging Face hub, or a mirror that speaks its protocol.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "base/environment.h"
#include "store/hub_id.h"

namespace millrace {

// `folder` is the repository's own in the store: GGUF files lie in it, a Hugging Face folder in snapshot-COMMIT below
// it. The snapshot that was fetched whole before, if there is one.
std::optional<std::filesystem::path> fetched_snapshot(const std::filesystem::path& folder);

// The path of the model, if it was fetched whole before.
std::optional<std::filesystem::path> fetched_from_hub(const HubId& id, const std::filesystem::path& folder);

// Fetches the model into the folder, whose lock the caller holds. Returns the first part of a GGUF, or a folder.
std::filesystem::path fetch_from_hub(const HubId& id, const std::filesystem::path& folder,
                                     const Environment& environment, const std::function<bool()>& cancelled);

}  // namespace millrace
