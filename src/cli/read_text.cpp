#include "cli/read_text.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.h"

namespace millrace {

std::string read_file_or_stdin(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (std::filesystem::is_directory(path)) fail(ErrorKind::NotFound, "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_errno(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace millrace
