// What the estimates of all linear kernels of the CPU have in common: weights come from memory.
#pragma once

#include "kernels/linear/linear.h"

namespace millrace {

// The share of rows of plain numbers: whole models of F16 are read at that on a Neoverse-V1, one thread or two.
inline constexpr double kRowsRead = 0.77;

// Microseconds to read the weights at a share of the bandwidth.
double reading_us(const LinearProblem& problem, double share, const Hardware& hardware);

}  // namespace millrace
