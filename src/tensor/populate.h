// Takes memory of the host from the system before it is used.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"

namespace millrace {

// `data` begins a page. Without this the system hands out memory when it is first written to, and clears it then. Where
// the system cannot do it ahead (Linux before 5.14), that is how it stays.
void populate(std::byte* data, size_t bytes, ThreadPool& pool);

}  // namespace millrace
