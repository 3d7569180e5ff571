// Peak rates of this machine: estimates start from them, and results are compared with them.
#pragma once

#include "base/thread_pool.h"
#include "hardware/hardware.h"

namespace millrace {

// From the instruction set and the number of threads alone; accurate within a factor of about two.
Ceilings guess_ceilings(const Hardware& hardware);

// One thread of this CPU with guessed ceilings, for choices that must not depend on the number of threads or on a
// measurement. Made once per instruction set: later calls allocate nothing, and the reference stays valid.
const Hardware& one_thread_of(const Hardware& cpu);

// Runs the machine at full load for about a second. The pool must have hardware.threads workers. Each figure is the
// best of several short runs, so that a short disturbance does not lower it.
Ceilings measure_ceilings(const Hardware& hardware, ThreadPool& pool);

// Checks measured values, and values read back from a file, against a generous range.
bool plausible(const Ceilings& ceilings);

}  // namespace millrace
