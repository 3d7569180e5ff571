// What other tools have already fetched from the Hugging Face hub: its cache is read, never written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/hub_id.h"

namespace millrace {

// The snapshot folders of a repository in the hub's cache, the current one first.
std::vector<std::filesystem::path> hub_snapshots(const std::filesystem::path& hub_cache, const HubId& id);

// The model that a snapshot holds complete: the first part of a GGUF, or the folder itself. Nothing where a file is
// missing or where the choice is not clear.
std::optional<std::filesystem::path> complete_model_in(const std::filesystem::path& snapshot, const HubId& id);

// Names of the files below a folder, relative to it, sorted; links count as what they lead to. Empty: no such folder.
std::vector<std::string> list_files(const std::filesystem::path& folder);

}  // namespace millrace
