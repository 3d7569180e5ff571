// Packs weights on the device, once at load: plain rows with padding, or the units of quantized/unit.cuh.
#include "kernels/cuda/small_floats.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/quantized/formats.h"
#include "kernels/linear/cuda/quantized/unit.cuh"
#include "kernels/linear/cuda/quantized/unit_fragments.cuh"
#include "tensor/blocks.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kUnpackThreads = 128;

__device__ int64_t placed(RowPlacement placement, int64_t row) {
  return placement.first + row / kGateUpGroup * placement.step + row % kGateUpGroup;
}

// clang-format off
template <DType kFormat> struct BlockOf;
template <> struct BlockOf<DType::Q4_0> { using Type = BlockQ4_0; };
template <> struct BlockOf<DType::Q4_1> { using Type = BlockQ4_1; };
template <> struct BlockOf<DType::Q5_0> { using Type = BlockQ5_0; };
template <> struct BlockOf<DType::Q5_1> { using Type = BlockQ5_1; };
template <> struct BlockOf<DType::Q8_0> { using Type = BlockQ8_0; };
template <> struct BlockOf<DType::Q4_K> { using Type = BlockQ4_K; };
template <> struct BlockOf<DType::Q5_K> { using Type = BlockQ5_K; };
template <> struct BlockOf<DType::Q6_K> { using Type = BlockQ6_K; };
template <> struct BlockOf<DType::IQ4_NL> { using Type = BlockIQ4_NL; };
template <> struct BlockOf<DType::IQ4_XS> { using Type = BlockIQ4_XS; };
template <> struct BlockOf<DType::MXFP4> { using Type = BlockMXFP4; };
// clang-format on

// The largest magnitude of a block of FP8 without its scale. Magnitudes compare like their bits.
__device__ float largest_f8(const BlockF8_E4M3& b) {
  uint32_t largest = 0;
  for (int e = 0; e < 32; ++e) largest = max(largest, b.qs[e] & 0x7fu);
  return e4m3_value(largest);
}

// The stored integer of element e of a block, without its scale. Sign bits are flipped, so that it is unsigned.
template <DType kFormat, class Block>
__device__ uint32_t stored(const Block& b, int e) {
  if constexpr (std::is_same_v<Block, BlockF8_E4M3>) {  // rounded to Q8_0
    const float largest = largest_f8(b), factor = largest > 0 ? 127 / largest : 0;
    return (static_cast<uint32_t>(__float2int_rn(factor * e4m3_value(b.qs[e]))) & 0xffu) ^ 0x80u;
  } else if constexpr (kFormat == DType::Q8_0) {
    return static_cast<uint8_t>(b.qs[e]) ^ 0x80u;
  } else if constexpr (kFormat == DType::Q4_K || kFormat == DType::Q5_K) {
    const uint32_t low = b.qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15;
    if constexpr (kFormat == DType::Q5_K) return low | (b.qh[e % 32] >> (e / 32) & 1) << 4;
    return low;
  } else if constexpr (kFormat == DType::Q6_K) {
    const uint32_t low = b.ql[e / 128 * 64 + e % 64] >> (e / 64 % 2 * 4) & 15;
    return low | (b.qh[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3) << 4;
  } else {
    const uint32_t low = b.qs[e / 32 * 16 + e % 16] >> (e % 32 / 16 * 4) & 15;
    if constexpr (kFormat == DType::Q5_0 || kFormat == DType::Q5_1) {
      return low | (b.qh[e / 8] >> (e % 8) & 1) << 4;
    }
    return low;
  }
}

// Packs the scales of block `block` (32 columns) of a unit for one row.
template <DType kFormat, class Block>
__device__ void pack_scales(const Block* blocks, int block, uint8_t* planes, int row) {
  using U = Unit<kFormat>;
  auto* halves = reinterpret_cast<uint16_t*>(planes + (kFormat == DType::IQ4_XS ? 8 : 16) * row);
  if constexpr (U::kPairs) {
    auto* pairs = reinterpret_cast<uint16_t*>(planes + block / 4 * 256 + 16 * row);
    pairs[block % 4 * 2] = blocks[block].d;
    pairs[block % 4 * 2 + 1] = blocks[block].m;
  } else if constexpr (U::kSixBits) {
    if (block == 0) {
      for (int i = 0; i < 16; ++i) planes[16 * row + i] = static_cast<uint8_t>(blocks->scales[i]);
      reinterpret_cast<uint16_t*>(planes + 256)[row] = blocks->d;
    }
  } else if constexpr (U::kSuper || kFormat == DType::IQ4_XS) {
    if (block == 0) {  // the block's header, unchanged
      const auto* header = reinterpret_cast<const uint16_t*>(blocks);
      for (int i = 0; i < (U::kSuper ? 8 : 4); ++i) halves[i] = header[i];
    }
  } else if constexpr (U::kFp4) {
    planes[8 * row + block] = encode_fp4_scale(blocks[block].e);
  } else if constexpr (std::is_same_v<Block, BlockF8_E4M3>) {
    halves[block] = __half_as_ushort(__float2half_rn(blocks[block].d * largest_f8(blocks[block]) / 127));
  } else {
    halves[block] = blocks[block].d;
  }
}

// Stores a lane's eight elements of one row and block in the planes of the unit.
template <DType kFormat>
__device__ void pack_elements(const uint32_t (&q)[8], int block, int half, int lane, uint8_t* unit) {
  using U = Unit<kFormat>;
  if constexpr (U::kBytes) {
    auto* words = reinterpret_cast<uint32_t*>(unit + (block * 32 + lane) * 16) + 2 * half;
    for (int i = 0; i < 2; ++i) words[i] = q[4 * i] | q[4 * i + 2] << 8 | q[4 * i + 1] << 16 | q[4 * i + 3] << 24;
    return;
  }
  const int w = block % 2 * 2 + half;
  uint32_t low = U::kFp4 ? encode_fp4(q) : 0;
  for (int p = 0; p < 4 && !U::kFp4; ++p) {
    // The table lookup turns nibbles into bytes, four at a time, so the two nibbles of a pair lie in bytes b and b + 2.
    const int first = U::kTable ? 16 * (p / 2) + 4 * (p % 2) : 4 * p;
    const int second = first + (U::kTable ? 8 : 16);
    low |= (q[2 * p] & 15) << first | (q[2 * p + 1] & 15) << second;
  }
  reinterpret_cast<uint32_t*>(unit + (block / 2 * 32 + lane) * 16)[w] = low;
  if constexpr (U::kFifthBit) {
    uint32_t high = 0;
    for (int p = 0; p < 4; ++p) high |= (q[2 * p] >> 4) << (4 * w + p) | (q[2 * p + 1] >> 4) << (16 + 4 * w + p);
    atomicOr(reinterpret_cast<uint32_t*>(unit + U::kHigh + lane * 16) + block / 2, high);
  }
  if constexpr (U::kSixBits) {
    uint32_t high = 0;
    for (int p = 0; p < 4; ++p) {
      high |= (q[2 * p] >> 4) << (8 * half + 2 * p) | (q[2 * p + 1] >> 4) << (16 + 8 * half + 2 * p);
    }
    atomicOr(reinterpret_cast<uint32_t*>(unit + U::kHigh + (block / 4 * 32 + lane) * 16) + block % 4, high);
  }
}

template <DType kFormat, class Block>
__global__ void pack_units(const Block* src, int64_t rows, int k, RowPlacement placement, int units, uint8_t* dst) {
  using U = Unit<kFormat>;
  constexpr int kBlocksPerUnit = kUnitColumns / Block::kElements;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int blocks = k / 32, t = static_cast<int>(job % 4), block = static_cast<int>(job / 4 % blocks);
  const int64_t row = job / 4 / blocks;
  if (row >= rows) return;
  const int64_t to = placed(placement, row);
  const int unit_row = static_cast<int>(to % kUnitRows), half = unit_row / 8, lane = unit_row % 8 * 4 + t;
  uint8_t* unit = dst + (to / kUnitRows * units + block / 8) * U::kSize;
  const Block* unit_blocks = src + row * (k / Block::kElements) + static_cast<int64_t>(block / 8) * kBlocksPerUnit;
  uint32_t q[8];
  for (int e = 0; e < 8; ++e) {
    const int column = block % 8 * 32 + U::column(t, e);
    q[e] = stored<kFormat>(unit_blocks[column / Block::kElements], column % Block::kElements);
  }
  pack_elements<kFormat>(q, block % 8, half, lane, unit);
  if (t == 0) pack_scales<kFormat>(unit_blocks, block % 8, unit + U::kScale, unit_row);
}

__device__ float half_value(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

template <DType kFormat>
__device__ float plain_value(const void* src, int64_t i) {
  if constexpr (kFormat == DType::F32) {
    return static_cast<const float*>(src)[i];
  } else if constexpr (kFormat == DType::F16) {
    return __half2float(static_cast<const __half*>(src)[i]);
  } else if constexpr (kFormat == DType::BF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(src)[i]);
  } else if constexpr (kFormat == DType::Q2_K) {
    const BlockQ2_K& b = static_cast<const BlockQ2_K*>(src)[i / 256];
    const int e = static_cast<int>(i % 256), q = b.qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
    const uint8_t scale = b.scales[e / 16];
    return half_value(b.d) * static_cast<float>(scale & 15) * static_cast<float>(q) -
           half_value(b.dmin) * static_cast<float>(scale >> 4);
  } else {
    const BlockQ3_K& b = static_cast<const BlockQ3_K*>(src)[i / 256];
    const int e = static_cast<int>(i % 256), group = e / 16;
    const int low = b.qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3, high = b.hmask[e % 32] >> (e / 32) & 1;
    const int scale = (b.scales[group % 8] >> (group / 8 * 4) & 15) | (b.scales[8 + group % 4] >> (group / 4 * 2) & 3)
                                                                          << 4;
    return half_value(b.d) * static_cast<float>(scale - 32) * static_cast<float>((low | high << 2) - 4);
  }
}

template <DType kFormat, class T>
__global__ void pack_rows(const void* src, int64_t rows, int64_t k, int64_t stride, RowPlacement placement, T* dst) {
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, row = job / k, column = job % k;
  if (row < rows) dst[placed(placement, row) * stride + column] = static_cast<T>(plain_value<kFormat>(src, job));
}

// One warp per unit: decodes it as the products do, reorders it in shared memory, and stores whole lines.
template <DType kFormat>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_units(const uint8_t* weights, int units, int64_t first, int64_t rows, int k, int64_t stride,
                 __nv_bfloat16* dst) {
  using U = Unit<kFormat>;
  constexpr int kPitch = kUnitColumns / 2 + 4;  // in words; rows g and g + 1 fall into different banks
  __shared__ alignas(16) uint32_t tiles[kUnpackThreads / 32][8][kPitch];
  const int64_t job = (static_cast<int64_t>(blockIdx.x) * kUnpackThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int unit_column = static_cast<int>(job % units) * kUnitColumns;
  const int64_t tile = job / units;
  if (tile * kUnitRows >= rows) return;
  const uint8_t* from = weights + ((first / kUnitRows + tile) * units + job % units) * U::kSize;
  auto& words = tiles[threadIdx.x / 32];
  UnitFragment<kFormat> unit;
  unit.meta.load(from, lane);
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) unit.load_quarter(from, lane, quarter);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      uint32_t pairs[4], more[4];
      unit.decode(block, half, pairs, more);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const float2 scale = unit.scale_minimum(block, p / 2, half);
        float2 q = unpack2<__nv_bfloat16>(pairs[p]);
        if constexpr (U::kWide) {
          const float2 rest = unpack2<__nv_bfloat16>(more[p]);
          q = {q.x + rest.x, q.y + rest.y};
        }
        if constexpr (U::kFp4) q = {q.x * U::kSumFactor, q.y * U::kSumFactor};
        const __nv_bfloat162 two =
            __floats2bfloat162_rn(fmaf(scale.x, q.x - U::kZero, scale.y), fmaf(scale.x, q.y - U::kZero, scale.y));
        words[g][16 * block + 4 * p + t] = *reinterpret_cast<const uint32_t*>(&two);
      }
    }
    __syncwarp();
    const int column = unit_column + 8 * lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t row = tile * kUnitRows + 8 * half + i;
      const uint4 eight = *reinterpret_cast<const uint4*>(&words[i][4 * lane]);
      if (row < rows && column < k) *reinterpret_cast<uint4*>(dst + row * stride + column) = eight;
    }
    __syncwarp();
  }
}

unsigned grid_of(int64_t jobs) { return static_cast<unsigned>(ceil_div(jobs, kThreads)); }

template <DType kFormat, class Block = typename BlockOf<kFormat>::Type>
cudaError_t pack_as_units(const void* src, int64_t rows, int64_t k, RowPlacement placement, void* dst,
                          cudaStream_t stream) {
  pack_units<kFormat, Block><<<grid_of(rows * (k / 8)), kThreads, 0, stream>>>(
      static_cast<const Block*>(src), rows, static_cast<int>(k), placement, static_cast<int>(ceil_div(k, kUnitColumns)),
      static_cast<uint8_t*>(dst));
  return cudaGetLastError();
}

template <DType kFormat>
cudaError_t pack_as_rows(DType packed, const void* src, int64_t rows, int64_t k, RowPlacement placement, void* dst,
                         cudaStream_t stream) {
  const int64_t stride = packed_linear_stride(k);
  if (packed == DType::BF16) {
    pack_rows<kFormat>
        <<<grid_of(rows * k), kThreads, 0, stream>>>(src, rows, k, stride, placement, static_cast<__nv_bfloat16*>(dst));
  } else {
    pack_rows<kFormat>
        <<<grid_of(rows * k), kThreads, 0, stream>>>(src, rows, k, stride, placement, static_cast<__half*>(dst));
  }
  return cudaGetLastError();
}

template <DType kFormat>
cudaError_t unpack_as_rows(const void* weights, int64_t k, int64_t first, int64_t rows, void* dst,
                           cudaStream_t stream) {
  const int64_t units = ceil_div(k, kUnitColumns);
  const int64_t blocks = ceil_div(ceil_div(rows, kUnitRows) * units * 32, kUnpackThreads);
  unpack_units<kFormat><<<static_cast<unsigned>(blocks), kUnpackThreads, 0, stream>>>(
      static_cast<const uint8_t*>(weights), static_cast<int>(units), first, rows, static_cast<int>(k),
      packed_linear_stride(k), static_cast<__nv_bfloat16*>(dst));
  return cudaGetLastError();
}

}  // namespace

DType packed_linear_format(DType source, DType x) {
  if (source == DType::F32 || is_plain(source)) return x;
  if (source == DType::F8_E4M3) return DType::Q8_0;
  return source == DType::Q2_K || source == DType::Q3_K ? DType::BF16 : source;
}

int64_t packed_linear_stride(int64_t k) { return round_up(k, 8); }

size_t packed_linear_bytes(DType format, int64_t n, int64_t k) {
  if (is_plain(format)) return static_cast<size_t>(n * packed_linear_stride(k)) * 2;
  const auto units = static_cast<size_t>(ceil_div(n, kUnitRows) * ceil_div(k, kUnitColumns));
  size_t each = 0;
  with_packed_format(format, [&](auto known) {
    each = Unit<known.value>::kSize;
    return cudaSuccess;
  });
  return units * each;
}

cudaError_t pack_linear(DType source, const void* src, int64_t rows, DType packed, int64_t n, int64_t k,
                        RowPlacement placement, void* dst, cudaStream_t stream) {
  if (rows <= 0 || k <= 0) return cudaSuccess;
  if (placement.first + (rows - 1) / kGateUpGroup * placement.step + (rows - 1) % kGateUpGroup >= n) {
    return cudaErrorInvalidValue;
  }
  if (is_plain(packed)) {
    switch (source) {
      case DType::F32:
        return pack_as_rows<DType::F32>(packed, src, rows, k, placement, dst, stream);
      case DType::F16:
        return pack_as_rows<DType::F16>(packed, src, rows, k, placement, dst, stream);
      case DType::BF16:
        return pack_as_rows<DType::BF16>(packed, src, rows, k, placement, dst, stream);
      case DType::Q2_K:
        return pack_as_rows<DType::Q2_K>(packed, src, rows, k, placement, dst, stream);
      case DType::Q3_K:
        return pack_as_rows<DType::Q3_K>(packed, src, rows, k, placement, dst, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }
  if (source == DType::F8_E4M3 && packed == DType::Q8_0) {
    return pack_as_units<DType::Q8_0, BlockF8_E4M3>(src, rows, k, placement, dst, stream);
  }
  if (packed != source) return cudaErrorInvalidValue;
  return with_packed_format(
      source, [&](auto known) { return pack_as_units<known.value>(src, rows, k, placement, dst, stream); });
}

cudaError_t unpack_linear(DType packed, const void* weights, int64_t n, int64_t k, int64_t first, int64_t rows,
                          void* dst, cudaStream_t stream) {
  if (first % kUnitRows != 0 || first + rows > n) return cudaErrorInvalidValue;
  if (rows <= 0) return cudaSuccess;
  return with_packed_format(
      packed, [&](auto known) { return unpack_as_rows<known.value>(weights, k, first, rows, dst, stream); });
}

}  // namespace millrace
