// The best this machine can do: the roof that estimates start from and that results are compared with.
#pragma once

#include "base/thread_pool.h"
#include "hardware/hardware.h"

namespace millrace {

// From the instruction set and the number of threads alone; right within a factor of about two.
Ceilings guess_ceilings(const Hardware& hardware);

// Runs the machine at full load for about a second. The pool must have hardware.threads workers. Each figure is the
// best of several short runs, so that a moment's disturbance does not lower it.
Ceilings measure_ceilings(const Hardware& hardware, ThreadPool& pool);

// In the range that a machine of this decade can have: for what was measured and for what was read back from a file.
bool plausible(const Ceilings& ceilings);

}  // namespace millrace
