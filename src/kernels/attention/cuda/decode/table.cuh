// The decode kernels of one head size, for the table of entries.
#pragma once

#include "kernels/attention/cuda/decode/cluster.cuh"
#include "kernels/attention/cuda/decode/entry.h"
#include "kernels/attention/cuda/decode/even.cuh"
#include "kernels/attention/cuda/decode/line.cuh"

namespace millrace {

template <class Config>
DecodeEntry entry_of(void (*kernel)(DecodeParams)) {
  constexpr int kSums = kTileRows * (Config::kMergeStride * 4 + 8), kStage = 2 * Config::kUnitBytes;
  return {kernel,         Config::kThreads, Config::kSharedBytes,    Config::kHasDeep ? Config::kDeepBytes : 0,
          Config::kWarps, Config::kStages,  Config::kWarps * kStage, (kSums + kStage - 1) / kStage};
}

template <class T, int kDim, KvStore kStore, Softmax kSoftmax>
DecodeEntry decode_entry_of(DecodeForm form) {
  using Line = LineConfig<kDim, kStore>;
  using Usual = DecodeConfig<kDim, kStore>;
  using Wide = DecodeConfig<kDim, kStore, kWideWarps>;
  switch (form) {
    case DecodeForm::Line:
      return entry_of<Line>(decode_attention<T, Line, kSoftmax>);
    case DecodeForm::Cluster:
      return entry_of<Usual>(decode_cluster<T, Usual, kSoftmax>);
    case DecodeForm::Even:  // larger heads leave no registers for the next pair's rows
      if constexpr (kDim <= 128) return entry_of<Usual>(decode_even<T, Usual, kSoftmax>);
      break;
    case DecodeForm::WideCluster:
      if constexpr (kDim == 64 || kDim == 128) return entry_of<Wide>(decode_cluster<T, Wide, kSoftmax>);
      break;
  }
  return {};
}

// All softmax variants for 16-bit KV with head sizes 64 and 128, only the lazy one for others, to limit compile time.
template <class T, int kDim, KvStore kStore = KvStore::Plain>
DecodeEntry decode_entry_of(Softmax softmax, DecodeForm form) {
  if (softmax == Softmax::Lazy) return decode_entry_of<T, kDim, kStore, Softmax::Lazy>(form);
  if constexpr (kStore == KvStore::Plain && (kDim == 64 || kDim == 128)) {
    return softmax == Softmax::Online ? decode_entry_of<T, kDim, kStore, Softmax::Online>(form)
                                      : decode_entry_of<T, kDim, kStore, Softmax::Unified>(form);
  }
  return {};
}

template <int kDim>
DecodeEntry decode_entry_of(DType kv, Softmax softmax, DecodeForm form) {
  return kv == DType::F16 ? decode_entry_of<__half, kDim>(softmax, form)
                          : decode_entry_of<__nv_bfloat16, kDim>(softmax, form);
}

}  // namespace millrace
