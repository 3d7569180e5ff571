// The roofline picture: what rate is within reach at how many operations per byte read from memory.
#pragma once

#include <string>

#include "hardware/hardware.h"

namespace millrace {

std::string roofline_text(const Hardware& hardware);  // about 15 lines for a terminal
std::string roofline_svg(const Hardware& hardware);   // a whole SVG document

}  // namespace millrace
