// Validators of option values, with messages that say what is expected.
#pragma once

#include <cstdint>
#include <string>

#include "cli/verb.h"

namespace millrace {

std::string is_seed(const std::string& text);

// CLI11's own range checks call a word that is no number "not in range", and accept NaN.
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator in_range(double least, double most);

// An empty value usually is an unset variable of a script. Silently treating it as absent would hide the mistake.
void refuse_empty_values(CLI::App& verb);

}  // namespace millrace
