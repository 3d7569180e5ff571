// Logging goes to stderr; stdout is for answers. The logger is private, so a program that links the library keeps its
// own default logger.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <string>

namespace millrace {

spdlog::logger& log();  // warnings only until set_verbosity()

// verbosity 0: warnings, 1 (-v): decisions, 2 (-vv): everything.
void set_verbosity(int verbosity);

// From now on a line is an object with time, level, event ("message") and message.
void log_as_json();
std::string log_time(std::chrono::system_clock::time_point time);  // 2026-01-31T12:00:00.000Z

}  // namespace millrace
