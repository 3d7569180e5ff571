#pragma once

#include <optional>

namespace millrace {

// Joules that the GPU has used since its driver was loaded, by NVML. Nullopt: it does not count, or NVML is missing.
std::optional<double> read_gpu_joules(int index);

}  // namespace millrace
