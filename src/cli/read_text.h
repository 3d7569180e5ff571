// Text from a file, from stdin ("-") or from an argument: any bytes.
#pragma once

#include <optional>
#include <string>

namespace millrace {

std::string read_file_or_stdin(const std::string& path);
std::optional<std::string> read_line_of_stdin();  // without its end; nullopt: the input ended

}  // namespace millrace
