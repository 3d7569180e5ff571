// A verb's options from a file or the environment. The command line overrides MILLRACE_NAME, which overrides the file.
#pragma once

#include <string>

#include "cli/verb.h"

namespace millrace {

// `config`: a JSON file of {"option-name": value}, comments allowed; empty: none. Throws Usage for unknown names and
// invalid values.
void apply_settings(CLI::App& verb, const std::string& config);

}  // namespace millrace
