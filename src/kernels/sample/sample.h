// Samples the next token of each row of logits. On a GPU, four bytes per row come back instead of a row of logits.
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

// A change of one logit. Changes apply in this order: those in [repeated, counted) are repetition penalties (divide a
// positive logit, multiply others), those in [counted, biased) are subtracted, those in [biased, end) are added. A
// token occurs at most once in each part.
struct LogitChange {
  int32_t token = 0;
  float value = 0;
};

// Sampling parameters of one row. After the logit changes: temperature, top-k, top-p and min-p, each on the tokens that
// the previous one kept, then the draw. Semantics as in SamplingParams.
struct DrawRow {
  double unit = 0;        // in [0, 1): position of the draw in the cumulative distribution
  float temperature = 0;  // 0: greedy; the other parameters are ignored
  int32_t top_k = 0;      // 0: no limit
  float top_p = 1, min_p = 0;
  int32_t repeated = 0, counted = 0, biased = 0, end = 0;  // ranges in the step's list of changes
};

// Probabilities are integer weights; the most likely token has kWholeWeight. Integer sums do not depend on the order of
// addition, so a seed gives the same text on every run.
constexpr float kWholeWeight = 4294967296.0f;

struct SampleOp {
  static constexpr std::string_view kName = "sample";
  struct Problem {
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix logits;  // [rows, cols] f32; rows with changes are overwritten
    const DrawRow* rows = nullptr;
    const LogitChange* changes = nullptr;
    int32_t* ids = nullptr;     // [rows]; NaN counts as -infinity; -1 if no logit is above -infinity
    int32_t* chosen = nullptr;  // null or a second copy of ids, read by the next step
  };

  static KernelList<SampleOp> cpu();  // best first where estimates tie
  static KernelList<SampleOp> cuda();
};
std::string to_string(const SampleOp::Problem& problem);

}  // namespace millrace
