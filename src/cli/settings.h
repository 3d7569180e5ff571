// Options of a verb from a file or from the environment, where the command line does not give them. A flag wins over
// MILLRACE_NAME, and that over the file.
#pragma once

#include <string>

#include "cli/verb.h"

namespace millrace {

// `config`: a JSON file of {"option-name": value}, comments allowed; empty: none. Throws Usage for names that the verb
// has not, and for values that it refuses.
void apply_settings(CLI::App& verb, const std::string& config);

}  // namespace millrace
