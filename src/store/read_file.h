// Reads a small file.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace millrace {

// Empty if the file does not exist.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace millrace
