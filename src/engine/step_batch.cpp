#include "engine/step_batch.h"

namespace millrace {

StepBatch::StepBatch(int64_t rows, int64_t sequences, int64_t logit_rows) {
  tokens_.reserve(static_cast<size_t>(rows));
  slices_.reserve(static_cast<size_t>(sequences));
  adapters_.reserve(static_cast<size_t>(sequences));
  for (auto* chosen : {&logit_rows_, &hidden_rows_, &chosen_rows_}) chosen->reserve(static_cast<size_t>(logit_rows));
}

void StepBatch::clear() {
  tokens_.clear();
  slices_.clear();
  adapters_.clear();
  logit_rows_.clear();
  hidden_rows_.clear();
}

void StepBatch::add(std::span<const int32_t> tokens, int32_t past, int32_t horizon, std::span<const int32_t> pages,
                    Logits logits, int32_t slot, int32_t adapter) {
  const auto rows = static_cast<int32_t>(tokens.size());
  const int32_t wanted = logits == Logits::None ? 0 : logits == Logits::Last ? 1 : rows;
  add(tokens, past, horizon, pages, Rows{rows - wanted, rows}, Rows{}, slot, false, 0, adapter);
}

void StepBatch::add(std::span<const int32_t> tokens, int32_t past, int32_t horizon, std::span<const int32_t> pages,
                    Rows logits, Rows hidden, int32_t slot, bool drafts, int32_t second, int32_t adapter) {
  const auto first = static_cast<int32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  slices_.push_back({first, static_cast<int32_t>(tokens.size()), past, horizon, pages, slot, drafts, second});
  adapters_.push_back(adapter);
  for (int32_t row = logits.begin; row < logits.end; ++row) logit_rows_.push_back(first + row);
  for (int32_t row = hidden.begin; row < hidden.end; ++row) hidden_rows_.push_back(first + row);
}

Batch StepBatch::batch() {
  chosen_rows_.assign(logit_rows_.begin(), logit_rows_.end());
  chosen_rows_.insert(chosen_rows_.end(), hidden_rows_.begin(), hidden_rows_.end());
  Batch batch{tokens_, slices_, chosen_rows_, static_cast<int64_t>(hidden_rows_.size())};
  batch.sequence_adapters = adapters_;
  return batch;
}

}  // namespace millrace
