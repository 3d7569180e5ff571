// Pooling: one row for each sequence of the batch, from all of its rows. Every slice is a whole sequence.
#pragma once

#include <string>

#include "kernels/attention/attention.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

enum class PoolKind : uint8_t { First, Mean, Last };

struct PoolOp {
  static constexpr std::string_view kName = "pool";
  struct Problem {
    PoolKind kind = PoolKind::Mean;
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    PoolKind kind = PoolKind::Mean;
    Matrix x;    // [rows, cols]
    Matrix out;  // [sequences, cols]
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };

  static KernelList<PoolOp> cpu();
  static KernelList<PoolOp> cuda();
  static const Kernel<PoolOp>* reference();  // scalar
};
std::string to_string(const PoolOp::Problem& problem);

}  // namespace millrace
