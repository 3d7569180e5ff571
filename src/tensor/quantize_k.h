// Encoders of the 256-element blocks, and of IQ4_NL, which share the scale search.
#pragma once

#include "tensor/blocks.h"

namespace millrace {

// `importance`: of the block's columns, or null (quantize_weighted.h).
void encode(const float* x, const float* importance, BlockIQ4_NL& block);
void encode(const float* x, const float* importance, BlockIQ4_XS& block);
void encode(const float* x, const float* importance, BlockQ2_K& block);
void encode(const float* x, const float* importance, BlockQ3_K& block);
void encode(const float* x, const float* importance, BlockQ4_K& block);
void encode(const float* x, const float* importance, BlockQ5_K& block);
void encode(const float* x, const float* importance, BlockQ6_K& block);

}  // namespace millrace
