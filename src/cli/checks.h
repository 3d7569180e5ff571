// Validators of option values, with messages that say what is expected.
#pragma once

#include <string>

#include "cli/verb.h"

namespace millrace {

std::string is_seed(const std::string& text);

// For real numbers: CLI11's own range check accepts NaN.
CLI::Validator in_range(double least, double most);

// An empty value usually is an unset variable of a script. Silently treating it as absent would hide the mistake.
void refuse_empty_values(CLI::App& verb);

}  // namespace millrace
