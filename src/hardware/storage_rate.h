// The rate at which storage delivers parts of a file that are not in memory.
#pragma once

#include <filesystem>
#include <optional>

namespace millrace {

// In GB/s, from a few reads that bypass the page cache. Nullopt if the file system does not support such reads.
std::optional<double> measure_storage_gbs(const std::filesystem::path& file);

}  // namespace millrace
