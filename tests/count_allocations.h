// Counts every `new` of the test program.
#pragma once

#include <cstdint>

namespace millrace {
int64_t allocations();
}
