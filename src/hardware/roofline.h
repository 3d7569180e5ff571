// The roofline plot: attainable rate over operations per byte read from memory.
#pragma once

#include <string>

#include "hardware/hardware.h"

namespace millrace {

std::string roofline_text(const Hardware& hardware);  // about 15 terminal lines
std::string roofline_svg(const Hardware& hardware);   // a complete SVG document

}  // namespace millrace
