// Checks names from servers and users before they become paths in the cache.
#pragma once

#include <string_view>

namespace millrace {

// True for a path that stays below its folder: relative, without "..", hidden components or unusual characters.
bool is_safe_relative_path(std::string_view path);

}  // namespace millrace
