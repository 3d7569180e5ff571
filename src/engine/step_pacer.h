// How much of a prompt a step may compute beside the streams that run, so that they keep their pace. The estimates of
// the kernels say what a chunk costs; what steps really took corrects them.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace millrace {

// Microseconds that steps should take, from few numbers: small enough to be asked for at every step.
struct StepEstimate {
  std::vector<std::pair<double, double>> by_rows;  // ascending rows -> us, short contexts
  double decode_us_per_position = 0;               // more for each position that a decode looks back at
  double prefill_us_per_position = 0;              // the same for each row of a chunk

  double us(int64_t decodes, int64_t decode_positions, int64_t chunk, int64_t chunk_past) const;
};

struct PacerOptions {
  double target_us = 0;  // of a step with a chunk; 0: what the streams take alone and `slack` more
  double slack = 0.25;
  // A step with short prompts may take this long in any case, which is still 30 tokens a second: they are over soon,
  // and thin slices of them would cost a step each.
  double short_us = 33e3;
};

enum class PromptLength : uint8_t { Short, Long };

// The decodes of a step: their rows, drafts included, and how far the sequences look back in all.
struct Decodes {
  int64_t rows = 0, positions = 0;
};

class StepPacer {
 public:
  // The estimate is made by prepare(), or when it is first needed.
  StepPacer(std::function<StepEstimate()> estimate, const PacerOptions& options)
      : make_estimate_(std::move(estimate)), options_(options) {}

  void prepare() {
    if (estimate_.by_rows.empty()) estimate_ = make_estimate_();
  }

  // Rows of such prompts that may join these streams, 1 to `most`: prompts never stand still.
  int64_t chunk(const Decodes& decodes, PromptLength length, int64_t past, int64_t most);

  void record(const Decodes& decodes, int64_t chunk, int64_t past, double us);  // what a step took

 private:
  double predicted_us(const Decodes& decodes, int64_t chunk, int64_t past) const;

  std::function<StepEstimate()> make_estimate_;
  PacerOptions options_;
  StepEstimate estimate_;
  double alone_ = 1, mixed_ = 1;  // real time over estimate: of steps without and with a chunk
  bool alone_known_ = false, mixed_known_ = false;
};

}  // namespace millrace
