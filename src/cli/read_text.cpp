#include "cli/read_text.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kLargest = size_t{1} << 30;  // a device may have no end
constexpr size_t kLongestLine = size_t{64} << 20;

std::string read_all(std::istream& in, const std::string& path) {
  std::string text;
  std::vector<char> piece(1 << 16);
  while (in.read(piece.data(), std::ssize(piece)) || in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kLargest) fail(ErrorKind::Usage, "{}: has more than {} bytes", path, kLargest);
  }
  if (in.bad()) fail_errno(path);
  return text;
}

}  // namespace

std::string read_file_or_stdin(const std::string& path) {
  if (path == "-") return read_all(std::cin, "stdin");
  std::error_code unknown;  // an error such as a too long name: opening the file reports it
  if (std::filesystem::is_directory(path, unknown)) fail(ErrorKind::NotFound, "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_errno(path);
  return read_all(in, path);
}

std::optional<std::string> read_line_of_stdin() {
  std::string line;
  for (int c = std::cin.get(); c != std::istream::traits_type::eof(); c = std::cin.get()) {
    if (c == '\n') return line;
    line += static_cast<char>(c);
    if (line.size() > kLongestLine) fail(ErrorKind::Usage, "stdin: has a line of more than {} bytes", kLongestLine);
  }
  return line.empty() ? std::nullopt : std::optional(std::move(line));
}

}  // namespace millrace
