// --help in 80 columns. CLI11 prints each description as one line, which terminals break at any letter.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

namespace millrace {

std::shared_ptr<CLI::FormatterBase> help_format();

}  // namespace millrace
