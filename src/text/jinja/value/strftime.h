// Python's datetime.strftime.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace millrace::jinja {

// Local time without a time zone: %z and %Z are empty, like those of datetime.now().
std::string format_local_time(std::string_view format, std::chrono::system_clock::time_point time);

}  // namespace millrace::jinja
