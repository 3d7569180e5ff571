// The numbers that keep a softmax safe, and the variants of it that compete.
#pragma once

namespace millrace {

enum class Softmax : unsigned char {
  Online,   // the maximum follows the scores: earlier sums are rescaled whenever it grows
  Lazy,     // it follows only when it lags by more than kLazySlack
  Unified,  // one maximum for the whole row, given or taken from the first tile; guarded, with Online as the fallback
};

// Scores are held inside +-kScoreLimit. Without it, a dot product that overflows to minus infinity in a whole row would
// make infinity minus infinity of its softmax.
constexpr float kScoreLimit = 1e30f;

constexpr float kNoScore = -1e35f;  // the maximum of nothing: below every score, and yet a finite distance from it
constexpr float kMasked = -3e38f;   // the score of a position that is not seen: far below kNoScore

// In log2: weights up to 2^8 lose no precision in f32.
constexpr float kLazySlack = 8;
// In log2: 2^20 positions with weights of 2^60 and values of 2^40 still fit f32, and so do their sums when all weights
// but the first tile's are tiny.
constexpr float kUnifiedRange = 60;
// The same for weights in f16: above 2^15 they do not fit, and small ones lose their bits.
constexpr float kUnifiedAboveHalf = 15, kUnifiedBelowHalf = 10;
constexpr float kSmallestTotal = 0x1p-60f;  // below it, a unified maximum was too high

// In log2: how large a score that was computed from rounded queries may be. Its error is at most some 2^-11 of it.
constexpr float kTrustedScore = 64;
// The same where queries and keys were rounded to bf16: at most some 2^-8.
constexpr float kTrustedPairScore = 32;

constexpr float kLog2E = 1.44269504088896f;

}  // namespace millrace
