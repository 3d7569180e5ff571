// Names this build: plans measured by one build say nothing about the kernels of another.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

std::string_view version();     // "0.1.0"
const std::string& build_id();  // the binary's own GNU build id, shortened

}  // namespace millrace
