// The whole of a small file.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace millrace {

// Empty where there is none.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace millrace
