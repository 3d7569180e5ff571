// Between what bounds the largest score of each query lies, head by head: what a unified maximum is calibrated from.
#pragma once

#include "kernels/attention/attention.h"

namespace millrace {

// Of one head, in natural units and after the soft-cap: the smallest and the largest of its rows' largest scores.
struct ScoreRange {
  float least = 3.4e38f, most = -3.4e38f;  // nothing seen
  bool seen() const { return least <= most; }
};

struct ScoreRangeOp {
  static constexpr std::string_view kName = "score_range";
  using Problem = AttentionProblem;
  struct Args {
    AttentionArgs attention;       // its output is not touched
    ScoreRange* ranges = nullptr;  // [heads], widened by what this batch shows
  };

  static KernelList<ScoreRangeOp> cpu();  // best first where estimates tie
  static KernelList<ScoreRangeOp> cuda();
};

}  // namespace millrace
