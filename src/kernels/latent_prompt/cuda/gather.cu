#include "kernels/attention/cuda/eight_bits.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/latent_prompt/cuda/steps.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;

enum class Stored : uint8_t { Halves, Fp8, Q8 };

struct Params {
  const std::byte* rows;
  const int32_t* pages;
  uint4* to;
  int block_size, pieces;  // pieces: of eight elements in a row
  int begin, end, count;
  int64_t row_bytes;
};

template <Stored kStored>
__device__ uint4 eight_of(const std::byte* row, int piece) {
  if constexpr (kStored == Stored::Halves) {
    return reinterpret_cast<const uint4*>(row)[piece];
  } else if constexpr (kStored == Stored::Fp8) {
    return expand_fp8(reinterpret_cast<const uint2*>(row)[piece]);
  } else {
    const auto* halves = reinterpret_cast<const uint16_t*>(row + piece / 4 * 34);  // scale, then quants
    const uint16_t* quants = halves + 1 + piece % 4 * 4;
    return expand_q8(quants[0] | quants[1] << 16, quants[2] | quants[3] << 16, halves[0]);
  }
}

template <Stored kStored>
__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int job = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int row = job / p.pieces, piece = job % p.pieces, position = p.begin + row;
  if (row >= p.count) return;
  uint4 eight{};
  if (position < p.end) {
    const int64_t slot = int64_t{p.pages[position / p.block_size]} * p.block_size + position % p.block_size;
    eight = eight_of<kStored>(p.rows + slot * p.row_bytes, piece);
  }
  p.to[job] = eight;
}

}  // namespace

CudaError gather_latents(const KvLayer& kv, const SliceTables& tables, const GatheredLatents& piece,
                         const CudaLaunch& launch) {
  const Params params{kv.keys,       tables.pages,   static_cast<uint4*>(piece.to),
                      kv.block_size, kv.key_dim / 8, piece.begin,
                      piece.end,     piece.rows,     static_cast<int64_t>(kv.key_row_bytes())};
  const auto kernel = kv.dtype == kFp8          ? gather<Stored::Fp8>
                      : kv.dtype == DType::Q8_0 ? gather<Stored::Q8>
                                                : gather<Stored::Halves>;
  const int jobs = piece.rows * params.pieces;
  return launch_kernel(kernel, dim3(static_cast<unsigned>((jobs + kThreads - 1) / kThreads)), kThreads, 0, launch,
                       params);
}

}  // namespace millrace
