// The softmax variants, and the limits that keep them free of overflow.
#pragma once

namespace millrace {

enum class Softmax : unsigned char {
  Online,   // the maximum follows the scores: earlier sums are rescaled whenever it grows
  Lazy,     // the maximum moves only when it lags by more than kLazySlack
  Unified,  // one maximum for the whole row, calibrated or from the first tile; checked, with Online as the fallback
};

// Scores are clamped to +-kScoreLimit. Otherwise a row of dot products that overflow to minus infinity would give
// infinity minus infinity in its softmax.
constexpr float kScoreLimit = 1e30f;

constexpr float kNoScore = -1e35f;  // maximum of no scores: below every score, but at a finite distance
constexpr float kMasked = -3e38f;   // score of a masked position: far below kNoScore

// In log2: weights up to 2^8 lose no precision in f32.
constexpr float kLazySlack = 8;
// In log2: 2^20 positions with weights of 2^60 and values of 2^40 still fit f32, and so do their sums if all weights
// but the first tile's are tiny.
constexpr float kUnifiedRange = 60;
// The same for weights in f16: above 2^15 they overflow, and small ones lose bits.
constexpr float kUnifiedAboveHalf = 15, kUnifiedBelowHalf = 10;
constexpr float kSmallestTotal = 0x1p-60f;  // a smaller total means that the unified maximum was too high

// In log2: largest trusted score from f16-rounded queries. Its relative error is at most about 2^-11.
constexpr float kTrustedScore = 64;
// The same for queries and keys rounded to bf16: relative error at most about 2^-8.
constexpr float kTrustedPairScore = 32;

constexpr float kLog2E = 1.44269504088896f;

}  // namespace millrace
