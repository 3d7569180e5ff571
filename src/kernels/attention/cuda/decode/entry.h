// The decode kernels that were compiled: one translation unit for each head size.
#pragma once

#include "kernels/attention/cuda/launch.h"

namespace millrace {

struct DecodeParams;

struct DecodeEntry {
  void (*kernel)(DecodeParams) = nullptr;  // null: there is none
  int threads = 0, shared_bytes = 0;
  int deep_bytes = 0;                          // shared memory with twice the stages; 0: does not fit
  int warps = 0, stages = 0, stage_bytes = 0;  // of shared memory: one stage of all warps
  int least_stages = 1;                        // a cluster's sums take the place of that many
};

DecodeEntry decode_entry_64(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_80(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_96(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_128(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_256(DType kv, Softmax softmax, DecodeForm form);

}  // namespace millrace
