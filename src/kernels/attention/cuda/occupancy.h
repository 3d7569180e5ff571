// Occupancy of kernels on the current device.
#pragma once

namespace millrace {

// Number of blocks of a kernel that the whole device runs at once; 0 if none fits or the kernel was not built for this
// device. Raises the kernel's shared memory limit.
int resident_blocks(const void* kernel, int threads, int shared_bytes);

// Number of clusters of `ranks` blocks that run at once. Call resident_blocks() first.
int resident_clusters(const void* kernel, int threads, int shared_bytes, int ranks);

int multiprocessor_count();

// 10 * major + minor: 90 for Hopper.
int device_capability();

}  // namespace millrace
