// The compiled decode kernels: one translation unit per head size of 16-bit KV, one per format of 8-bit KV.
#pragma once

#include "kernels/attention/cuda/launch.h"

namespace millrace {

struct DecodeParams;

struct DecodeEntry {
  void (*kernel)(DecodeParams) = nullptr;  // null: not compiled
  int threads = 0, shared_bytes = 0;
  int deep_bytes = 0;                          // shared memory with twice the stages; 0: does not fit
  int warps = 0, stages = 0, stage_bytes = 0;  // stage_bytes: one stage of all warps
  int least_stages = 1;                        // the sums of a cluster need the memory of this many stages
};

DecodeEntry decode_entry_64(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_80(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_96(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_128(DType kv, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_256(DType kv, Softmax softmax, DecodeForm form);
// KV in 8 bits, products of f16.
DecodeEntry decode_entry_q8(int head_dim, Softmax softmax, DecodeForm form);
DecodeEntry decode_entry_fp8(int head_dim, Softmax softmax, DecodeForm form);

}  // namespace millrace
