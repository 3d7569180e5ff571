// What the current device offers to a kernel.
#pragma once

namespace millrace {

// How many blocks of a kernel the whole device runs at once; 0 where not even one fits, or the kernel was not built for
// it. Lets the kernel use that much shared memory.
int resident_blocks(const void* kernel, int threads, int shared_bytes);

// How many clusters of so many blocks run at once. After resident_blocks().
int resident_clusters(const void* kernel, int threads, int shared_bytes, int ranks);

int multiprocessor_count();

// Compute capability times ten: 90 for Hopper.
int device_capability();

}  // namespace millrace
