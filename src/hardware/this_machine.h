// The machine with its ceilings, measured once and kept in the user's cache.
#pragma once

#include "hardware/hardware.h"

namespace millrace {

// threads 0: one per usable physical core. Kept measurements are used where there are any; else `measure` decides
// between a second or two of measuring now and guesses.
Hardware this_machine(int threads = 0, bool measure = false, IsaSet allowed = detect_isa());

}  // namespace millrace
