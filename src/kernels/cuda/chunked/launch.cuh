// Launches of a chunked recurrence; see params.cuh.
#pragma once

#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/cuda/chunked/advance.cuh"
#include "kernels/cuda/chunked/advance_warpgroup.cuh"
#include "kernels/cuda/chunked/step.cuh"
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
size_t workspace_bytes(int64_t rows, int heads) {
  return static_cast<size_t>(chunks_at_once(rows) * heads) * ChunkRecord<kSolved>::kBytes;
}

// Whether chunks are computed, if all sequences have as many rows.
inline bool is_prompt(int64_t rows, int64_t sequences) { return rows >= kLeastRows * sequences; }

// Chunks of a sequence follow each other; a wide state fills the multiprocessors.
inline double rows_us(int64_t rows, int64_t sequences, int64_t value_width) {
  const double chunks = double(chunks_of(rows));
  return 12 + chunks * std::max(1.0 / double(sequences), double(value_width) / 8192) * 3;
}

// The slices of one row.
template <int kKeys, class Gate>
void run_steps(const ChunkedParams& params, const Gate& gate, size_t slices, const Executor& executor) {
  const int columns = params.value_dim % 128 == 0 && kKeys <= 128 ? 128 : 64;
  const dim3 grid(static_cast<unsigned>((params.value_dim + columns - 1) / columns),
                  static_cast<unsigned>(params.heads), static_cast<unsigned>(slices));
  void (*step)(PrepareParams<Gate>) = step_rows<kKeys, 64, Gate>;
  if constexpr (kKeys <= 128) {
    if (columns == 128) step = step_rows<kKeys, 128, Gate>;
  }
  check_launch(launch_kernel(step, grid, kStepThreads, 0, cuda_launch(executor), PrepareParams<Gate>{params, gate}),
               "starting a recurrence");
}

// The kernel that goes through the chunks, on this device.
struct Advancing {
  void (*kernel)(ChunkedParams);
  int threads;
  size_t shared_bytes;
};
template <int kKeys, bool kSolved>
Advancing advancing() {
  if constexpr (kKeys <= 128) {
    if (device_capability() == 90) {
      return {advance_by_warpgroups<kKeys, kSolved>, kWarpgroupThreads, Passed<kKeys, kSolved>::kBytes};
    }
  }
  return {advance_chunks<kKeys, kSolved>, kAdvanceThreads, advance_bytes<kKeys, kSolved>()};
}

// The kernels of a recurrence on the current device, allowed the shared memory that they need: once per device, since
// these are calls of the driver.
template <int kKeys, class Gate>
struct ChunkKernels {
  static constexpr size_t kPrepareBytes = PrepareShared<kKeys, Gate::kSolved>::kBytes;
  void (*prepare)(PrepareParams<Gate>) = prepare_chunks<kKeys, Gate>;
  Advancing advance = advancing<kKeys, Gate::kSolved>();

  ChunkKernels() {
    allow(prepare, kPrepareBytes);
    allow(advance.kernel, advance.shared_bytes);
  }

 private:
  template <class Params>
  static void allow(void (*kernel)(Params), size_t shared_bytes) {
    check_launch(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "preparing a recurrence");
  }
};

// The slices of at least kLeastRows rows.
template <int kKeys, class Gate>
void run_chunks(ChunkedParams params, const Gate& gate, std::span<const SequenceSlice> slices, int64_t rows,
                const Executor& executor) {
  using Kernels = ChunkKernels<kKeys, Gate>;
  const Kernels& kernels = per_cuda_device<Kernels>();
  const unsigned blocks = static_cast<unsigned>((params.value_dim + kBlockColumns - 1) / kBlockColumns);
  const auto heads = static_cast<unsigned>(params.heads);
  for_pieces(slices, chunks_at_once(rows), [&](const Pieces& pieces) {
    params.pieces = pieces;
    check_launch(launch_kernel(kernels.prepare, dim3(static_cast<unsigned>(pieces.chunks), heads), kPrepareThreads,
                               Kernels::kPrepareBytes, cuda_launch(executor), PrepareParams<Gate>{params, gate}),
                 "starting a recurrence");
    check_launch(launch_kernel(kernels.advance.kernel, dim3(static_cast<unsigned>(pieces.count), heads * blocks),
                               kernels.advance.threads, kernels.advance.shared_bytes, cuda_launch(executor), params),
                 "starting a recurrence");
  });
}

// All slices; those of several rows, but fewer than kLeastRows, by between(least_rows, most_rows).
template <int kKeys, class Gate, class Between>
void run(const ChunkedParams& params, const Gate& gate, std::span<const SequenceSlice> slices, int64_t rows,
         const Executor& executor, Between between) {
  bool has_steps = false, has_others = false;
  for (const SequenceSlice& s : slices) {
    has_steps |= s.rows == 1;
    has_others |= s.rows > 1 && s.rows < kLeastRows;
  }
  if (has_steps) run_steps<kKeys>(params, gate, slices.size(), executor);
  if (has_others) between(2, kLeastRows - 1);
  run_chunks<kKeys>(params, gate, slices, rows, executor);
}

}  // namespace millrace::chunked
