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
  std::error_code unknown;  // a name that is too long, say: opening it says so
  if (std::filesystem::is_directory(path, unknown)) fail(ErrorKind::NotFound, "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_errno(path);
  try {
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  } catch (const std::ios_base::failure&) {  // the library throws what the system says in the middle of a file
    fail_errno(path);
  }
}

}  // namespace millrace
