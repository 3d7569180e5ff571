// Cosines and sines for the position of each row, computed once per step.
#pragma once

#include <span>
#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct RopeAnglesOp {
  static constexpr std::string_view kName = "rope_angles";
  struct Problem {
    int64_t rows = 0;
    int rotary_dim = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    struct Frequencies {
      const float* inverse = nullptr;  // [rotary_dim / 2]
      float magnitude = 1;             // factor on cosines and sines (yarn, longrope)
    };
    std::span<const int32_t> positions;  // [rows]
    Frequencies usual;
    // longrope: rows whose horizon exceeds `long_from` use `extended`; 0 disables it.
    int64_t long_from = 0;
    Frequencies extended;
    std::span<const int32_t> horizons;  // [rows]: length that the row's sequence is known to reach
    Matrix angles;                      // [rows, rotary_dim]: cosines, then sines
  };

  static KernelList<RopeAnglesOp> cpu();  // best first where estimates tie
  static KernelList<RopeAnglesOp> cuda();
};
std::string to_string(const RopeAnglesOp::Problem& problem);

}  // namespace millrace
