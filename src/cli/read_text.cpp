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
  std::error_code unknown;  // an error such as a too long name: opening the file reports it
  if (std::filesystem::is_directory(path, unknown)) fail(ErrorKind::NotFound, "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_errno(path);
  try {
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  } catch (const std::ios_base::failure&) {  // the standard library throws read errors
    fail_errno(path);
  }
}

}  // namespace millrace
