// Text from a file, from stdin ("-") or from an argument: any bytes.
#pragma once

#include <string>

namespace millrace {

std::string read_file_or_stdin(const std::string& path);

}  // namespace millrace
