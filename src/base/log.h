// Logging goes to stderr; stdout belongs to answers. The logger is our own: a program that links us keeps its default
// one.
#pragma once

#include <spdlog/logger.h>

namespace millrace {

spdlog::logger& log();  // warnings only, until set_verbosity says otherwise

// verbosity 0: warnings, 1 (-v): what was decided, 2 (-vv): everything.
void set_verbosity(int verbosity);

}  // namespace millrace
