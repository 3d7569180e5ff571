// Logging goes to stderr; stdout is for answers. The logger is private, so a program that links the library keeps its
// own default logger.
#pragma once

#include <spdlog/logger.h>

namespace millrace {

spdlog::logger& log();  // warnings only until set_verbosity()

// verbosity 0: warnings, 1 (-v): decisions, 2 (-vv): everything.
void set_verbosity(int verbosity);

}  // namespace millrace
