#include "engine/where.h"

namespace millrace {

std::vector<Where> tested_places() { return {Where::Cpu, Where::CpuAhead}; }

}  // namespace millrace
