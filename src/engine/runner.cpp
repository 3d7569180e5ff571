// The steps of a loaded model (runner_load.cpp).
#include "engine/runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"

namespace millrace {
namespace {

// Decodes without drafts, or with equally many of each sequence: those shapes come again and again. A step whose
// sequences have different numbers of drafts is launched kernel by kernel.
bool is_recordable(const PlacedBatch& batch) {
  const auto alike = [&](const SequenceSlice& s) {
    return s.rows == batch.sequences.front().rows && (s.rows == 1 || s.drafts);
  };
  return batch.wants_every_row && batch.without_logits == 0 &&
         std::all_of(batch.sequences.begin(), batch.sequences.end(), alike);
}

}  // namespace

void Runner::compute(const PlacedBatch& batch, int slot) {
  tables_->send();
  Pass pass(*ops_, *activations_, *kv_, model_->config(), batch);
  pass.scores = &knowledge_;
  model_->forward(pass);
  results_->take(pass.logits, *draws_, slot, *ops_);
}

// The step itself is under way by then: where it cannot be recorded, nothing of it is lost.
std::unique_ptr<Recording> Runner::recorded(const PlacedBatch& batch, int slot) {
  try {
    compute(batch, slot);
    return device_->end_recording();
  } catch (const Error& error) {
    device_->drop_recording();
    log().warn("a step was not recorded: {}", error.what());
    return nullptr;
  }
}

void Runner::replay_or_record(const PlacedBatch& batch, int64_t pages, int slot) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  const auto is_it = [&](const RecordedStep& step) {
    return step.rows == rows && step.sequences == sequences && step.pages == pages && step.draws == draws_->any() &&
           step.slot == slot;
  };
  const auto found = std::find_if(recorded_.begin(), recorded_.end(), is_it);
  if (found != recorded_.end()) {
    std::rotate(recorded_.begin(), found, found + 1);
    results_->expect(rows);
    return recorded_.front().recording->replay();
  }
  compute(batch, slot);  // at once, so that whatever a kernel prepares on first use is ready when it is recorded
  if (!device_->begin_recording()) return;
  auto recording = recorded(batch, slot);
  if (recording == nullptr) return;  // a full card: the next step is launched kernel by kernel, too
  if (recorded_.size() == kRecordedSteps) recorded_.pop_back();
  recorded_.insert(recorded_.begin(), {rows, sequences, pages, draws_->any(), slot, std::move(recording)});
}

DrawTables& Runner::draws() {
  draws_->use(next_slot());
  return *draws_;
}

void Runner::start(const Batch& batch) {
  MR_ASSERT(std::ssize(started_) < Device::kStepsAtOnce);
  const int slot = next_slot();
  int64_t context = 1;
  for (const auto& slice : batch.sequences) context = std::max<int64_t>(context, slice.past + slice.rows);
  // Tables are as wide as the bucket of the longest context, so that a recorded step fits until the next bucket.
  const auto bucket = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(context, 64))));
  const int64_t pages = std::min(table_sizes().pages, (bucket + options_.block_size - 1) / options_.block_size);
  PlacedBatch placed = tables_->place(batch, pages, slot);
  placed.chosen = results_->chosen();
  draws().send(static_cast<int64_t>(batch.logit_rows.size()));
  if (is_recordable(placed) && !device_->is_host() && !ops_->watched() && knowledge_.observed == nullptr) {
    replay_or_record(placed, pages, slot);
  } else {
    compute(placed, slot);
  }
  device_->mark(slot);
  hidden_rows_ = {static_cast<int64_t>(batch.logit_rows.size()) - batch.without_logits, batch.without_logits};
  started_.push_back({slot, results_->rows()});
}

std::span<const int32_t> Runner::finish() {
  const Started step = started_.front();
  started_.erase(started_.begin());
  device_->wait_for(step.slot);
  draws_->use(step.slot);
  draws_->clear();  // they were of this step
  return results_->tokens(step.slot, step.rows);
}

void Runner::abandon() noexcept {
  try {
    device_->finish();
  } catch (const Error& error) {
    log().error("{}", error.what());
    lost_ = true;
  }
  started_.clear();
  for (int slot = 0; slot < Device::kStepsAtOnce; ++slot) {
    draws_->use(slot);
    draws_->clear();
  }
}

std::span<const int32_t> Runner::run(const Batch& batch, FunctionRef<void()> meanwhile) {
  if (device_->is_host()) meanwhile();  // before: all cores compute
  start(batch);
  if (!device_->is_host()) meanwhile();
  return finish();
}

bool Runner::errand(std::function<void()> task) {
  const bool all_compute = device_->is_host() && options_.threads >= hardware().cores * hardware().threads_per_core;
  return all_compute && pool_->errand(std::move(task));
}

Matrix Runner::hidden() { return results_->hidden(activations_->last, hidden_rows_.first, hidden_rows_.second); }

Matrix Runner::logits() { return results_->logits(); }

Matrix Runner::forward(const Batch& batch, FunctionRef<void()> meanwhile) {
  run(batch, meanwhile);
  return logits();
}

}  // namespace millrace
