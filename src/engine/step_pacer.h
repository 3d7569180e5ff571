// Limits the prompt rows of a step so that generating sequences keep their pace. Starts from kernel estimates and
// corrects them by measured step times.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/draft_plan.h"

namespace millrace {

// Estimated step times in microseconds, as a small table that can be evaluated at every step.
struct StepEstimate {
  std::vector<std::pair<double, double>> by_rows;      // ascending rows -> us, for short contexts
  std::vector<std::pair<double, double>> by_verified;  // the same where every row has logits
  double decode_us_per_position = 0;                   // added per cached position of every decode
  double prefill_us_per_position = 0;                  // added per row of a chunk and cached position
  double draft_us_per_position = 0;                    // added per draft token and cached position of its sequence

  double copy_slot_us = 0;  // of a sequence's recurrent state; 0: the model has none
  double copy_page_us = 0;  // of the page being filled, for a branch

  double us(int64_t decodes, int64_t decode_positions, int64_t chunk, int64_t chunk_past) const;
  double verify_us(int64_t decodes, int64_t decode_positions, const DraftedRows& drafts) const;
};

struct PacerOptions {
  double target_us = 0;  // of a step with a chunk; 0: the time without the chunk, times 1 + slack
  double slack = 0.25;
  // A step with short prompts may always take `short_us`. Such prompts end soon, and thin slices of them would cost a
  // step each. It may take up to `aged_us` as they become as old as the generating requests, which is still 24 tokens
  // per second, and up to `burst_us` if three seconds of prompts are due. So requests that arrived together end
  // together, and later ones do not hold them up.
  double short_us = 12e3, aged_us = 42e3, burst_us = 66e3;
};

enum class PromptLength : uint8_t { Short, Long };

// The prompts that want to join a step.
struct DuePrompts {
  PromptLength length = PromptLength::Long;
  int64_t past = 0;  // the most cached positions of one
  int64_t rows = 0;  // of all together
  double age = 0;    // of the oldest one since its arrival, over the mean age of the generating requests
};

// The decodes of a step: rows including drafts, and cached positions of all sequences together.
struct Decodes {
  int64_t rows = 0, positions = 0;
};

class StepPacer {
 public:
  // prepare() computes the estimate, or the first call that needs it.
  StepPacer(std::function<StepEstimate()> estimate, const PacerOptions& options)
      : make_estimate_(std::move(estimate)), options_(options) {}

  void prepare() {
    if (estimate_.by_rows.empty()) estimate_ = make_estimate_();
  }

  // Rows of such prompts that may join these decodes: 1 to `most`, so that prompts always progress.
  int64_t chunk(const Decodes& decodes, const DuePrompts& prompts, int64_t most);

  // Estimated time of a step of these decodes, one row each, with drafts. Only ratios matter, and the
  // length of a draft must not depend on the clock, so measured times do not correct it.
  double verify_us(const Decodes& decodes, const DraftedRows& drafts) {
    prepare();
    return estimate_.verify_us(decodes.rows, decodes.positions, drafts);
  }

  void record(const Decodes& decodes, int64_t chunk, int64_t past, double us);  // measured time of a step

 private:
  double predicted_us(const Decodes& decodes, int64_t chunk, int64_t past) const;
  double budget_us(const Decodes& decodes, const DuePrompts& prompts) const;

  std::function<StepEstimate()> make_estimate_;
  PacerOptions options_;
  StepEstimate estimate_;
  double alone_ = 1, mixed_ = 1;  // measured / estimated time of steps without and with a chunk
  bool alone_known_ = false, mixed_known_ = false;
};

}  // namespace millrace
