// Attention of one prompt over keys and values that were expanded from latent rows (MLA) into memory. A key has columns
// of its head, then columns that all heads share.
//
// The context is expanded and attended to in pieces. Each piece leaves the unnormalized sums of its queries to the next
// one, in the order of positions, so the same prompt gives the same bits.
#pragma once

#include "kernels/attention/cuda/launch.h"

namespace millrace {

inline constexpr int kExpandedTile = 128;  // pieces begin at multiples of it and are stored up to one

// Sums of queries between two pieces.
struct ExpandedSums {
  float* values = nullptr;  // [heads][rows][padded_value]
  float* totals = nullptr;  // [heads][rows][2]: largest score in log2, sum of weights relative to it
};

struct ExpandedArgs {
  // All of `heads` heads and one sequence. q holds the shared columns only. Keys, values and tables are unused.
  CudaAttentionArgs attention;
  CudaMatrix plain;                             // queries' columns of their head
  int64_t plain_stride = 0, shared_stride = 0;  // elements from one head to the next, in `plain` and in q
  DeviceSlice slice;                            // lengths of the host: steps with prompts are not recorded
  int heads = 0, plain_dim = 0, shared_dim = 0, value_dim = 0;
  int begin = 0, end = 0;          // positions of the piece
  const void* expanded = nullptr;  // [position][head][head_columns]: plain columns of the key, then the value
  int head_columns = 0;            // a multiple of eight
  const void* shared = nullptr;    // [position]: shared columns of keys
  int64_t position_stride = 0;     // elements from one position to the next, in `shared`
  ExpandedSums before, after;
};

// Whether a kernel was built for heads of such sizes and runs on the current device.
bool can_attend_expanded(DType type, int plain_dim, int shared_dim, int value_dim);
int padded_value(int plain_dim, int value_dim);  // columns of a row of sums

// `type`: of keys and values, F16 or BF16.
CudaError launch_expanded_attention(DType type, const ExpandedArgs& args, const CudaLaunch& launch);

}  // namespace millrace
