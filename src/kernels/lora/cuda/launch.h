// Launches of low-rank adapters on a GPU.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/lora/lora.h"

namespace millrace {

const Kernel<LoraOp>& cuda_lora_any();  // any problem; two launches
// Up to kMostDecodeRows rows on Hopper; one launch. With clusters of four blocks 32 adapters take about one block of
// each multiprocessor, which leaves room for a block of the next kernel to request its weights.
const Kernel<LoraOp>& cuda_lora_decode();

inline constexpr int kLoraGroup = 8;                                    // rows
inline constexpr int kLogCluster = 2, kLoraCluster = 1 << kLogCluster;  // blocks; eight were slower (docs/lora.md)
inline constexpr int kDecodeThreads = 256, kDecodeWarps = kDecodeThreads / 32;
inline constexpr int kTileRanks = 16;  // rows of A in a tensor-core product
inline constexpr int kTileFloats = kTileRanks * kLoraGroup;
inline constexpr int kPassRanks = 64;       // rows of A that are computed at once
inline constexpr int kTileColumns = 64;     // of a part of y, of a warp
inline constexpr int kMostDecodeRows = 64;  // find_lora_group() has a bit for each

struct LoraDecodeParams {
  const LoraWeights* table;
  const int32_t* adapters;
  CudaMatrix x, y, feed;  // feed: of a gated layer
  const float* squares;   // as in LoraOp::Args
  float epsilon, scale, inverse_k;
  int rows, k;
  int half, gate_group;  // of a gated layer: columns of feed; as in LoraOp::Args
  // Most clusters, as a power of two, that divide the columns of y of a group. Each computes A x, which is faster than
  // waiting for it.
  int log_splits;
  int most_rank;                        // a multiple of 16
  bool wide;                            // rows of y are multiples of 16 bytes
  const LoraWeights* next;              // as in LoraOp::Args
  int next_row_bytes, most_next_bytes;  // of its A: of a row, and to fetch ahead for a group
  constexpr int pass_ranks() const { return most_rank < kPassRanks ? most_rank : kPassRanks; }
  constexpr int pass_floats() const { return pass_ranks() * kLoraGroup; }
  size_t shared_bytes() const {
    const int buffers = most_rank > kPassRanks ? 2 : 1;
    return sizeof(float) * static_cast<size_t>(kDecodeWarps * kTileFloats + buffers * kLoraCluster * pass_floats() +
                                               most_rank * kLoraGroup);
  }
};

CudaError launch_lora_decode(const LoraDecodeParams& params, DType format, const CudaLaunch& launch);

}  // namespace millrace
