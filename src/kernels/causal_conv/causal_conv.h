// A causal depthwise convolution over each sequence: out[t] = sum over j of weight[j] * x[t - taps + 1 + j], channel by
// channel, plus a bias, then SiLU if asked for. The last taps - 1 inputs of a sequence are its state, so that chunks
// and single tokens continue it.
#pragma once

#include <span>
#include <string>

#include "kernels/attention/attention.h"

namespace millrace {

struct CausalConvOp {
  static constexpr std::string_view kName = "causal_conv";
  struct Problem {
    int64_t rows = 0, channels = 0;
    int taps = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix x;                       // [rows, channels]
    Matrix out;                     // [rows, channels] of x's type; not x
    const float* weight = nullptr;  // [channels][taps]; the last tap is of the row itself
    int taps = 0;
    std::byte* state =
        nullptr;        // the record of slot s is at state + s * stride: [taps - 1][channels] f32, oldest first
    size_t stride = 0;  // bytes
    std::span<const SequenceSlice> sequences;
    SliceTables tables;           // on a GPU
    const float* bias = nullptr;  // [channels]; null: zeros
    bool silu = false;            // out = silu(convolution + bias)
  };
  static constexpr int kMostTaps = 8;  // of the fast kernels

  static KernelList<CausalConvOp> cpu();
  static KernelList<CausalConvOp> cuda();
  static const Kernel<CausalConvOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const CausalConvOp::Problem& problem);

}  // namespace millrace
