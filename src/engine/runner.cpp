#include "engine/runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"

namespace millrace {
namespace {

// Decodes without drafts, or with equally many drafts for each sequence: these shapes repeat. Steps with different
// numbers of drafts are launched kernel by kernel.
bool is_recordable(const PlacedBatch& batch) {
  const auto alike = [&](const SequenceSlice& s) {
    return s.rows == batch.sequences.front().rows && (s.rows == 1 || s.drafts);
  };
  const bool has_logits = batch.wants_every_row || batch.features.matrix.data != nullptr;
  return has_logits && batch.without_logits == 0 && std::all_of(batch.sequences.begin(), batch.sequences.end(), alike);
}

}  // namespace

Runner::Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options)
    : source_(std::move(source)), options_(options), rank_(std::make_unique<Rank>(*source_, options_)) {}

void Runner::load(const Progress& progress) {
  rank_->load(progress);
  const auto& config = model().config();
  Device& device = rank_->device();
  const int32_t alternatives = model().is_draft_head() ? ArgmaxOp::kMostSkipped : 0;
  results_ = std::make_unique<StepResults>(device, options_.device_draws, options_.logit_rows, alternatives,
                                           config.vocab, std::max(config.hidden, model().pooled_width()));
  draws_ = std::make_unique<DrawTables>(ops(), options_.device_draws, options_.logit_rows, config.vocab);
  recorded_.reserve(kRecordedSteps);
  started_.reserve(Device::kStepsAtOnce);
}

void Runner::compute(const PlacedBatch& batch, int slot) {
  rank_->tables().send();
  const Pass pass = rank_->forward(batch);
  last_ = pass.last;
  features_ = pass.features;
  results_->take(pass.logits, *draws_, batch.alternatives, slot, ops());
}

// The step was already launched without recording, so a failure here loses nothing.
std::unique_ptr<Recording> Runner::recorded(const PlacedBatch& batch, int slot) {
  try {
    compute(batch, slot);
    return rank_->end_recording();
  } catch (const Error& error) {
    rank_->drop_recording();
    log().warn("a step was not recorded: {}", error.what());
    return nullptr;
  }
}

void Runner::replay_or_record(const PlacedBatch& batch, int64_t pages, int slot) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  const int64_t adapters = batch.adapters.empty() ? 0 : rank_->adapters().version();
  const auto is_it = [&](const RecordedStep& step) {
    return step.rows == rows && step.sequences == sequences && step.logit_rows == logit_rows && step.pages == pages &&
           step.adapters == adapters && step.draws == draws_->any() && step.slot == slot &&
           step.alternatives == batch.alternatives && step.features == batch.features.matrix.data;
  };
  const auto found = std::find_if(recorded_.begin(), recorded_.end(), is_it);
  if (found != recorded_.end()) {
    std::rotate(recorded_.begin(), found, found + 1);
    results_->expect(logit_rows);
    return recorded_.front().recording->replay();
  }
  compute(batch, slot);  // first without recording, because kernels may initialize on first use
  if (unrecorded_steps_ > 0) {
    --unrecorded_steps_;
    return;
  }
  if (!rank_->begin_recording()) return;
  auto recording = recorded(batch, slot);
  if (recording == nullptr) {  // out of GPU memory: the next steps are launched kernel by kernel
    unrecorded_steps_ = kStepsUntilRetry;
    return;
  }
  if (recorded_.size() == (rank_->uses_host() ? kRecordedInPieces : kRecordedSteps)) recorded_.pop_back();
  recorded_.insert(recorded_.begin(), {rows, sequences, logit_rows, pages, adapters, draws_->any(), slot,
                                       batch.alternatives, batch.features.matrix.data, std::move(recording)});
}

DrawTables& Runner::draws() {
  draws_->use(next_slot());
  return *draws_;
}

void Runner::start(const Batch& batch) {
  rank_->device().use_on_this_thread();
  MR_ASSERT(std::ssize(started_) < Device::kStepsAtOnce);
  const int slot = next_slot();
  int64_t context = 1;
  for (const auto& slice : batch.sequences) context = std::max<int64_t>(context, slice.past + slice.rows);
  // Block tables are as wide as the bucket of the longest context, so that a recorded step stays valid within the
  // bucket.
  const auto bucket = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(context, 64))));
  const int64_t pages = std::min(rank_->pages(), (bucket + options_.block_size - 1) / options_.block_size);
  PlacedBatch placed = rank_->tables().place(batch, pages, slot);
  placed.chosen = results_->chosen();
  draws().send(static_cast<int64_t>(batch.logit_rows.size()));
  if (is_recordable(placed) && rank_->can_record(std::ssize(batch.tokens)) && ops().mode() == Ops::Mode::Run &&
      !rank_->observes_scores()) {
    replay_or_record(placed, pages, slot);
  } else {
    compute(placed, slot);
  }
  rank_->device().mark(slot);
  hidden_rows_ = {static_cast<int64_t>(batch.logit_rows.size()) - batch.without_logits, batch.without_logits};
  started_.push_back({slot, results_->rows() * (1 + batch.alternatives)});
}

std::span<const int32_t> Runner::finish() {
  const Started step = started_.front();
  started_.erase(started_.begin());
  rank_->device().wait_for(step.slot);
  draws_->use(step.slot);
  draws_->clear();  // they belonged to this step
  return results_->tokens(step.slot, step.tokens);
}

void Runner::abandon() noexcept {
  try {
    rank_->device().finish();
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
  if (rank_->device().is_host()) meanwhile();  // before the step, which uses all cores
  start(batch);
  if (!rank_->device().is_host()) meanwhile();
  return finish();
}

bool Runner::errand(std::function<void()> task) {
  const bool all_compute =
      rank_->device().is_host() && options_.threads >= hardware().cores * hardware().threads_per_core;
  return all_compute && rank_->pool().errand(std::move(task));
}

Matrix Runner::hidden() { return results_->hidden(last_, hidden_rows_.first, hidden_rows_.second); }

Matrix Runner::logits() { return results_->logits(); }

Matrix Runner::forward(const Batch& batch, FunctionRef<void()> meanwhile) {
  run(batch, meanwhile);
  return logits();
}

}  // namespace millrace
