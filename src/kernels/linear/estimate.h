// Memory time of the CPU's linear kernels, which their estimates share.
#pragma once

#include "kernels/linear/linear.h"

namespace millrace {

// Bandwidth share of kernels on plain rows, fitted to F16 models on a Neoverse-V1 with one and two threads.
inline constexpr double kRowsRead = 0.77;

// Microseconds to read the weights at this share of the bandwidth.
double reading_us(const LinearProblem& problem, double share, const Hardware& hardware);

}  // namespace millrace
