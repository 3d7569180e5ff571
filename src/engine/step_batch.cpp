#include "engine/step_batch.h"

namespace millrace {

StepBatch::StepBatch(int64_t rows, int64_t sequences, int64_t logit_rows) {
  tokens_.reserve(static_cast<size_t>(rows));
  slices_.reserve(static_cast<size_t>(sequences));
  logit_rows_.reserve(static_cast<size_t>(logit_rows));
}

void StepBatch::clear() {
  tokens_.clear();
  slices_.clear();
  logit_rows_.clear();
}

void StepBatch::add(std::span<const int32_t> tokens, int32_t past, int32_t horizon, std::span<const int32_t> pages,
                    Logits logits) {
  const auto first = static_cast<int32_t>(tokens_.size());
  const auto rows = static_cast<int32_t>(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  slices_.push_back({first, rows, past, horizon, pages});
  const int32_t wanted = logits == Logits::None ? 0 : logits == Logits::Last ? 1 : rows;
  for (int32_t row = rows - wanted; row < rows; ++row) logit_rows_.push_back(first + row);
}

}  // namespace millrace
