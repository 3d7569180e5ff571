// Encoders of the 256-element blocks, and of IQ4_NL, which share the scale search.
#pragma once

#include "tensor/blocks.h"

namespace millrace {

void encode(const float* x, BlockIQ4_NL& block);
void encode(const float* x, BlockIQ4_XS& block);
void encode(const float* x, BlockQ2_K& block);
void encode(const float* x, BlockQ3_K& block);
void encode(const float* x, BlockQ4_K& block);
void encode(const float* x, BlockQ5_K& block);
void encode(const float* x, BlockQ6_K& block);

}  // namespace millrace
