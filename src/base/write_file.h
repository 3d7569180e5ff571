// Atomic file replacement: concurrent readers see the old content or the new, never a mixture.
#pragma once

#include <filesystem>
#include <string_view>

namespace millrace {

// Creates missing parent folders. Throws Io.
void write_file(const std::filesystem::path& path, std::string_view content);

// Throws what write_file() would throw; call it before long work whose result goes there. Leaves the file unchanged.
void require_writable(const std::filesystem::path& path);

}  // namespace millrace
