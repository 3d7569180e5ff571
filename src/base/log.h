// Logging goes to stderr; stdout belongs to answers.
#pragma once

#include <spdlog/spdlog.h>

namespace millrace {

// verbosity 0: warnings, 1 (-v): what was decided, 2 (-vv): everything.
void set_verbosity(int verbosity);

}  // namespace millrace
