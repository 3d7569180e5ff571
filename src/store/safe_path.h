// Names that come from a server or a person and become paths in the cache.
#pragma once

#include <string_view>

namespace millrace {

// A relative path below a folder: no "..", no absolute path, no hidden or odd component.
bool is_safe_relative_path(std::string_view path);

}  // namespace millrace
