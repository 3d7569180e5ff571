// Faults in host memory ahead of use.
#pragma once

#include <cstddef>

namespace millrace {

class ThreadPool;

// `data` must start a page. Without this the system clears each page at its first write, which stalls a step. On Linux
// before 5.14 the call does nothing.
void populate(std::byte* data, size_t bytes, ThreadPool& pool);

}  // namespace millrace
