// The best this machine can do: the roof that estimates start from and that results are compared with.
#pragma once

#include "base/thread_pool.h"
#include "hardware/hardware.h"

namespace millrace {

// From the instruction set and the number of threads alone; right within a factor of about two.
Ceilings guess_ceilings(const Hardware& hardware);

}  // namespace millrace
