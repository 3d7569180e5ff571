// Sizes of the rows8 kernels that were found by search. scripts/search-kernels compiles the kernels with other values
// from the command line and writes a machine's best values into its file.
//   MR_SMALL_STREAMS, MR_SMALL_AHEAD  decode: strips that a worker reads in turn, prefetch distance of each in bytes
//   MR_NIBBLE_STREAMS                 the same for 4-bit blocks
//   MR_K_STREAMS, MR_K_MIN_STREAMS,   the same for K-blocks: streams of those without and with minima
//   MR_K_AHEAD
//   MR_AHEAD_CACHE                    target of the prefetches: 3 is the L1 cache, 2 the L2
//   MR_NEAR_SMALL_AHEAD,              prefetch distances of kernels that prefetch into the L1 cache
//   MR_NEAR_K_AHEAD
//   MR_PANEL_STRIPS, MR_PANEL_GROUPS  prompts: size of a panel
//   MR_PANEL_ROWS                     prompts: rows of x that are multiplied with a panel at a time
//   MR_AMX_GROUPS                     the same for AMX, whose panels are of bf16
//   MR_PIECES                         pieces of work per worker
#pragma once

#if defined(__aarch64__)
#include "kernels/linear/rows8/tuned_arm.h"
#else
#include "kernels/linear/rows8/tuned_x86.h"
#endif
