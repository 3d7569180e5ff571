// Runs the windows of a text through models side by side and hands over the logits of their scored halves. Windows,
// halves and `bos` are those of measure_perplexity().
#pragma once

#include <functional>
#include <span>

#include "base/function_ref.h"
#include "engine/runner.h"

namespace millrace {

struct ScoredText {
  std::span<const int32_t> tokens;
  int32_t context = 512;     // tokens of a window
  int64_t most_windows = 0;  // 0: all of the text
  int32_t bos = -1;          // replaces the first token of each window; -1: none

  int64_t windows() const;
  int64_t rows() const { return windows() * (context - context / 2); }
};

// `on_row` gets one matrix of logits per runner, and the row. All runners must have been loaded for as many rows of
// logits as rows.
void score_rows(std::span<Runner* const> runners, const ScoredText& text,
                FunctionRef<void(std::span<const Matrix>, int64_t row)> on_row,
                const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
