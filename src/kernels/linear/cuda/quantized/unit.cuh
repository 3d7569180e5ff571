// Quantized weights for the tensor cores. A unit is 16 rows x 256 columns. It holds the bits of the file's blocks in
// the order in which the lanes of a warp need them, and is read in 16-byte pieces.
//
// A unit is a sequence of planes. Columns form 8 blocks of 32. Lane 4 g + t owns elements e = 0..7 of rows g and g + 8
// in each block, at column 8 (e / 2) + 2 t + e % 2, which are the lane's tensor-core operands.
//
// - low plane, 4 to 6 bits: [4 pairs of blocks][lane][4 words: block 0 row g, row g + 8, block 1 row g, row g + 8].
//   Elements 2 p and 2 p + 1 of a word are at bits 4 p and 16 + 4 p: a shift and a mask make them a pair of bf16.
// - low plane, Q8_0: [8 blocks][lane][row g: 2 words, row g + 8: 2 words], bytes in the order e = 0, 2, 1, 3 with the
//   sign bit flipped.
// - low plane, IQ4: the same words as for 4 bits, but with nibbles e = 0, 2, 1, 3, 4, 6, 5, 7, the order in which the
//   lookup of four indices at a time gives the pairs.
// - low plane, MXFP4: the same words, with the bits of fp4.cuh.
// - high plane, 5 bits: [lane][4 words]; word q belongs to the q-th pair of blocks: bits 4 w + p and 16 + 4 w + p are
//   the fifth bits of pair p of low word w.
// - high plane, 6 bits: [2 halves][lane][4 words], one word per block: two bits each at 8 h + 2 p and 16 + 8 h + 2 p
//   for pair p of row g + 8 h.
// - scale planes: [16 rows][16 bytes] (IQ4_XS, MXFP4: 8 bytes): eight f16 for formats with blocks of 32; eight
//   bytes for MXFP4 (fp4.cuh); two planes of four (scale, minimum) pairs for Q4_1 and Q5_1; the header of the block for
//   Q4_K, Q5_K and IQ4_XS; sixteen int8, then [16 rows] f16 for Q6_K.
#pragma once

#include <bit>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int kUnitRows = 16;
inline constexpr int kUnitColumns = 256;

template <DType kFormat>
struct Unit {
  static constexpr DType F = kFormat;
  static constexpr bool kBytes = F == DType::Q8_0;
  static constexpr bool kFifthBit = F == DType::Q5_0 || F == DType::Q5_1 || F == DType::Q5_K;
  static constexpr bool kSixBits = F == DType::Q6_K;
  static constexpr bool kFp4 = F == DType::MXFP4;
  static constexpr bool kTable = F == DType::IQ4_NL || F == DType::IQ4_XS;
  static constexpr bool kPairs = F == DType::Q4_1 || F == DType::Q5_1;  // (scale, minimum) as two f16
  static constexpr bool kSuper = F == DType::Q4_K || F == DType::Q5_K;  // 6-bit scales and minima
  static constexpr bool kMinimum = kPairs || kSuper;
  static constexpr bool kWide = kBytes || kTable;  // eight-bit values, decoded from bytes: two products of bf16 each

  static constexpr int kLowBytes = kBytes ? 4096 : 2048;
  static constexpr int kHighBytes = kFifthBit ? 512 : kSixBits ? 1024 : 0;
  static constexpr int kScaleBytes = kPairs ? 512 : F == DType::IQ4_XS || kFp4 ? 128 : kSixBits ? 288 : 256;
  static constexpr int kHigh = kLowBytes, kScale = kLowBytes + kHighBytes;
  static constexpr int kSize = kScale + kScaleBytes;

  // Zero point of a stored number.
  static constexpr int kStoredZero = kWide ? 128 : F == DType::Q4_0 ? 8 : F == DType::Q5_0 ? 16 : kSixBits ? 32 : 0;
  // An element decoded to bf16 is its number plus this (MXFP4: its number times 2^-126).
  static constexpr float kZero = kFp4 ? 0 : kWide ? 512 : 128 + kStoredZero;
  // Factor of a sum of products of decoded elements, decoded scales and x.
  static constexpr float kSumFactor = kFp4 ? 0x1p32f : 1;

  static constexpr uint32_t kMinusZero = (std::bit_cast<uint32_t>(-kZero) >> 16) * 0x10001u;  // a pair of bf16

  // Number of columns that share a scale.
  static constexpr int kRun = kSixBits ? 16 : 32;
  static constexpr int kRuns = kUnitColumns / kRun;

  // Column of element e of lane t in its block.
  __host__ __device__ static constexpr int column(int t, int e) { return 8 * (e / 2) + 2 * t + e % 2; }
};

static_assert(Unit<DType::Q4_0>::kSize == 16 * 8 * 18 && Unit<DType::Q4_1>::kSize == 16 * 8 * 20);
static_assert(Unit<DType::Q5_0>::kSize == 16 * 8 * 22 && Unit<DType::Q5_1>::kSize == 16 * 8 * 24);
static_assert(Unit<DType::Q8_0>::kSize == 16 * 8 * 34 && Unit<DType::IQ4_NL>::kSize == 16 * 8 * 18);
static_assert(Unit<DType::MXFP4>::kSize == 16 * 8 * 17);
static_assert(Unit<DType::Q4_K>::kSize == 16 * 144 && Unit<DType::Q5_K>::kSize == 16 * 176);
static_assert(Unit<DType::Q6_K>::kSize == 16 * 210 && Unit<DType::IQ4_XS>::kSize == 16 * 136);

}  // namespace millrace
