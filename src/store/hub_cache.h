// Reads models from the Hugging Face hub cache, which other tools fill. The store never writes there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/hub_id.h"

namespace millrace {

// The snapshot folders of a repository in the hub cache, the current one first.
std::vector<std::filesystem::path> hub_snapshots(const std::filesystem::path& hub_cache, const HubId& id);

// Returns the complete model in a snapshot: the first part of a GGUF, or the folder itself. Empty if a file is missing
// or if several GGUF files match the id.
std::optional<std::filesystem::path> complete_model_in(const std::filesystem::path& snapshot, const HubId& id);

// Sorted paths of the files below a folder, relative to it. Follows links. Empty if the folder does not exist.
std::vector<std::string> list_files(const std::filesystem::path& folder);

}  // namespace millrace
