// RMSNorm and LayerNorm over rows, or over equal groups within each row (per-head norms of q and k).
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

enum class NormKind : uint8_t { Rms, Layer };

struct NormOp {
  static constexpr std::string_view kName = "norm";
  struct Problem {
    NormKind kind = NormKind::Rms;
    int64_t rows = 0, cols = 0, groups = 1;
    bool accumulate = false;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    NormKind kind = NormKind::Rms;
    Matrix x;
    Matrix out;                     // may alias x
    const float* weight = nullptr;  // [cols / groups]; null: ones
    const float* bias = nullptr;    // as weight, LayerNorm only; null: zeros
    float epsilon = 1e-5f;
    int groups = 1;
    bool accumulate = false;         // out += the norm, for a norm after a block that is added to the residual stream
    bool weights_per_group = false;  // weight and bias are [cols]: each group has its own
    // [cols / groups]: weights of the groups from `second_from` on, so that the heads of q and of k take one launch.
    const float* second_weight = nullptr;
    int second_from = 0;
  };

  static KernelList<NormOp> cpu();  // best first where estimates tie
  static KernelList<NormOp> cuda();
  static const Kernel<NormOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const NormOp::Problem& problem);

}  // namespace millrace
