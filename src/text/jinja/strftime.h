// Dates as Python's datetime.strftime writes them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace millrace::jinja {

// In the local time zone, without a zone of its own: %z and %Z are empty, as they are for datetime.now().
std::string format_local_time(std::string_view format, std::chrono::system_clock::time_point time);

}  // namespace millrace::jinja
