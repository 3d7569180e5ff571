// Files that other processes may read at any moment: they see the old content or the new one, never half of it.
#pragma once

#include <filesystem>
#include <string_view>

namespace millrace {

// Creates the folders above it. Throws Io.
void write_file(const std::filesystem::path& path, std::string_view content);

// Throws what write_file() would, before work whose result could not be kept. Leaves the file as it is.
void require_writable(const std::filesystem::path& path);

}  // namespace millrace
