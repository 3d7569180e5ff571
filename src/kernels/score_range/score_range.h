// Range of each head's row maxima of attention scores. `millrace calibrate` derives the unified softmax maximum from
// it.
#pragma once

#include "kernels/attention/attention.h"

namespace millrace {

// Smallest and largest row maximum of one head, after scale and softcap.
struct ScoreRange {
  float least = 3.4e38f, most = -3.4e38f;  // empty
  bool seen() const { return least <= most; }
};

struct ScoreRangeOp {
  static constexpr std::string_view kName = "score_range";
  using Problem = AttentionProblem;
  struct Args {
    AttentionArgs attention;       // out is not written
    ScoreRange* ranges = nullptr;  // [heads]; extended by this batch
  };

  static KernelList<ScoreRangeOp> cpu();  // best first where estimates tie
  static KernelList<ScoreRangeOp> cuda();
};

}  // namespace millrace
