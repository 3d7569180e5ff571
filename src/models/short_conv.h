// The short convolution of LFM2: out(C * conv(B * x)) with [B, C, x] = in(input). It takes the place of attention in a
// layer; its state is a slot.
#pragma once

#include "cache/state_layout.h"
#include "models/blocks.h"

namespace millrace {

struct ShortConv {
  int taps = 3;
  const Linear* in = nullptr;      // [3 hidden, hidden]
  const Vector* weight = nullptr;  // [hidden][taps]
  const Vector* bias = nullptr;    // [hidden]; null: none
  const Linear* out = nullptr;     // [hidden, hidden]
  int state = 0;                   // slot in the StateLayout
};

ShortConv load_short_conv(Weights::Layer& at, int taps, int64_t hidden, StateLayout& state);

// Without the output matrix: [rows, hidden].
Matrix short_conv_block(Pass& pass, const ShortConv& conv, const Normed& x);

}  // namespace millrace
