// The next token of each row of logits, drawn where the logits are: four bytes a row come back instead of a vocabulary.
#pragma once

#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

// Changes of one row's logits, in this order: those of [repeated, counted) divide a positive logit and multiply others,
// those of [counted, biased) are subtracted, those of [biased, end) added. A token occurs once in each part.
struct LogitChange {
  int32_t token = 0;
  float value = 0;
};

// Then temperature, top-k, top-p and min-p, each on what the one before left, and a draw: as SamplingParams say.
struct DrawRow {
  double unit = 0;        // in [0, 1): where among the probabilities the draw falls
  float temperature = 0;  // 0: the likeliest token, and what follows does not matter
  int32_t top_k = 0;      // 0: all
  float top_p = 1, min_p = 0;
  int32_t repeated = 0, counted = 0, biased = 0, end = 0;  // in the step's list of changes
};

// Weights are whole numbers, the likeliest token's is kWholeWeight: their sums do not depend on the order they are
// added up in, so a seed gives the same text on every run.
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
    int32_t* ids = nullptr;     // [rows]; NaN counts as -infinity, -1: nothing is above that
    int32_t* chosen = nullptr;  // the same once more, for the next step; may be null
  };

  static KernelList<SampleOp> cpu();  // best first where estimates tie
  static KernelList<SampleOp> cuda();
};
std::string to_string(const SampleOp::Problem& problem);

}  // namespace millrace
