// Prints lines for a person. A full device or a closed pipe loses the line and does not end the program; answers, whose
// loss is an error, are printed with fmt::print.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace millrace {

enum class Stream { Stdout = 1, Stderr = 2 };  // file descriptors

void tell_text(Stream stream, std::string_view text);

template <class... Args>
void tell(Stream stream, fmt::format_string<Args...> format, Args&&... args) {
  tell_text(stream, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace millrace
