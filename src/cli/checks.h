// Checks of option values, with messages that say what is expected.
#pragma once

#include <string>

#include "cli/verb.h"

namespace millrace {

std::string is_seed(const std::string& text);

// For real numbers: CLI11's own range lets NaN through.
CLI::Validator in_range(double least, double most);

// An empty value is an unset variable of a script: taken for "not given", it would be ignored without a word.
void refuse_empty_values(CLI::App& verb);

}  // namespace millrace
