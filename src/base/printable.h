// Text from files and servers, made safe for a terminal and for a log.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// One line of UTF-8: control characters become spaces, and bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

}  // namespace millrace
