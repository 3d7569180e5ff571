// Launches of a chunked recurrence; see params.cuh.
#pragma once

#include "hardware/cuda_device.h"
#include "kernels/cuda/chunked/advance.cuh"
#include "kernels/cuda/chunked/prepare.cuh"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"

namespace millrace::chunked {

template <int kKeys, bool kSolved>
constexpr size_t advance_bytes() {
  return 2 * ChunkStage<kKeys, kSolved>::kBytes;
}

template <bool kSolved>
bool fits(int key_dim, const Hardware& hardware) {
  constexpr size_t kReserved = 1024;  // per block, by the driver
  const size_t bytes = key_dim <= 64    ? advance_bytes<64, kSolved>()
                       : key_dim <= 128 ? advance_bytes<128, kSolved>()
                                        : advance_bytes<256, kSolved>();
  return hardware.l1_bytes >= static_cast<int64_t>(bytes + kReserved);
}

template <bool kSolved>
size_t record_bytes(int key_dim, int value_dim) {
  if (key_dim <= 64) return ChunkRecord<64, kSolved>::bytes(value_dim);
  if (key_dim <= 128) return ChunkRecord<128, kSolved>::bytes(value_dim);
  return ChunkRecord<256, kSolved>::bytes(value_dim);
}

template <bool kSolved>
size_t workspace_bytes(int64_t rows, int heads, int key_dim, int value_dim) {
  return static_cast<size_t>(chunks_at_once(rows) * heads) * record_bytes<kSolved>(key_dim, value_dim);
}

// Chunks of a sequence follow each other; a wide state fills the multiprocessors.
inline double rows_us(int64_t rows, int64_t sequences, int64_t value_width) {
  const double chunks = double(chunks_of(rows));
  return 12 + chunks * std::max(1.0 / double(sequences), double(value_width) / 8192) * 3;
}

template <int kKeys, class Gate>
void run(ChunkedParams params, const Gate& gate, std::span<const SequenceSlice> slices, int64_t rows,
         const Executor& executor) {
  constexpr bool kSolved = Gate::kSolved;
  constexpr size_t kPrepareBytes = PrepareShared<kKeys, kSolved>::kBytes,
                   kAdvanceBytes = advance_bytes<kKeys, kSolved>();
  void (*prepare)(PrepareParams<Gate>) = prepare_chunks<kKeys, Gate>;
  void (*advance)(ChunkedParams) = advance_chunks<kKeys, kSolved>;
  static const bool ready = [=] {  // once: it is a call of the driver
    check_launch(cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, kPrepareBytes),
                 "preparing a recurrence");
    check_launch(cudaFuncSetAttribute(advance, cudaFuncAttributeMaxDynamicSharedMemorySize, kAdvanceBytes),
                 "preparing a recurrence");
    return true;
  }();
  static_cast<void>(ready);
  params.record_bytes = ChunkRecord<kKeys, kSolved>::bytes(params.value_dim);
  const unsigned blocks = static_cast<unsigned>((params.value_dim + kBlockColumns - 1) / kBlockColumns);
  const auto heads = static_cast<unsigned>(params.heads);
  for_pieces(slices, chunks_at_once(rows), [&](const Pieces& pieces) {
    params.pieces = pieces;
    check_launch(launch_kernel(prepare, dim3(static_cast<unsigned>(pieces.chunks), heads), kPrepareThreads,
                               kPrepareBytes, cuda_launch(executor), PrepareParams<Gate>{params, gate}),
                 "starting a recurrence");
    check_launch(launch_kernel(advance, dim3(static_cast<unsigned>(pieces.count), heads * blocks), kAdvanceThreads,
                               kAdvanceBytes, cuda_launch(executor), params),
                 "starting a recurrence");
  });
}

}  // namespace millrace::chunked
