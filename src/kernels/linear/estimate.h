// What the estimates of all linear kernels of the CPU have in common: weights come from memory.
#pragma once

#include "kernels/linear/linear.h"

namespace millrace {

// Microseconds to read the weights at a share of the bandwidth.
double reading_us(const LinearProblem& problem, double share, const Hardware& hardware);

}  // namespace millrace
