#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"
#include "engine/step_cost.h"

namespace millrace {
namespace {

double usual_slack(const Runner& runner) { return runner.hardware().device == DeviceKind::Cpu ? 0.1 : 0.25; }

// Steps of fewer rows cost a GPU about as much. Recurrent state is kept before the last chunk, and the next turn of a
// conversation may need it there.
int32_t last_chunk(Runner& runner) {
  return runner.hardware().device == DeviceKind::Cpu || runner.state().has_slots() ? 64 : 256;
}

// The share by which drafts must raise the expected rate. On a GPU drafts of different lengths are not recorded, and
// launching their kernels takes time that the plans do not count.
double draft_margin(const Runner& runner) { return runner.hardware().device == DeviceKind::Cpu ? 0.03 : 0.15; }

}  // namespace

Engine::Engine(Runner& runner, const EngineOptions& options)
    : runner_(runner),
      draft_tokens_(options.drafter != nullptr ? std::max(0, options.draft_tokens) : 0),
      draft_width_(std::clamp(options.draft_width, 1, 1 + kMostBranches)),
      pacer_([&runner, drafts = options.drafts_by_cost] { return estimate_steps(runner, drafts); },
             {options.tpot_target_ms * 1e3, options.prefill_slack > 0 ? options.prefill_slack : usual_slack(runner)}),
      power_(runner.rank().device()),
      scheduler_(runner.state(),
                 {.rows = runner.options().rows,
                  .sequences = runner.options().sequences,
                  .logit_rows = runner.options().logit_rows,
                  .long_from = runner.model().long_from(),
                  .prefix_cache = options.prefix_cache && !runner.model().pools(),
                  .drafter = options.drafter,
                  .draft_tokens = draft_tokens_,
                  .draft_width = draft_width_,
                  .places = runner.options().places(),
                  .drafts_by_cost = options.drafts_by_cost,
                  .draft_margin = draft_margin(runner),
                  .runs_ahead = runner.runs_ahead(),
                  .last_chunk = last_chunk(runner),
                  .whole_prompts = runner.model().pools(),
                  .same_chunks = !runner.options().batch_invariant},
                 pacer_),
      parked_(options.prefix_cache && !runner.model().pools() ? options.parked : nullptr),
      batch_(runner.options().rows, runner.options().places(), runner.options().logit_rows),
      forked_(static_cast<size_t>(runner.model().config().vocab)),
      pooling_(read_pooling(runner.source())) {
  for (Step* step : {&step_, &ahead_}) {
    step->plan.parts.reserve(static_cast<size_t>(runner.options().sequences));
    step->on_host.reserve(static_cast<size_t>(runner.options().logit_rows));
  }
  drawing_.reserve(static_cast<size_t>(runner.options().sequences));
  if (parked_ == nullptr) return;
  parking_.emplace(runner.state(), scheduler_.tree(), runner.rank().device(), *parked_);
  scheduler_.park_with(&*parking_);
}

Engine::~Engine() {
  if (ahead_.started) runner_.abandon();
}

void Engine::cancel(RequestId id, int32_t choice) {
  for (auto& part :
       ahead_.plan.parts) {  // none of these parts computes a prompt for other choices, so all matching ones end
    const Sequence* s = part.sequence;
    if (s != nullptr && s->id() == id && (choice < 0 || s->choice() == choice)) part.sequence = nullptr;
  }
  scheduler_.cancel(id, choice);
}

bool Engine::step(FunctionRef<void(const Emission&)> emit, FunctionRef<void()> meanwhile) {
  const auto turn = runner_.turn();
  runner_.rank().adapters().free_unused();
  if (!compose()) {
    MR_ASSERT(scheduler_.idle());  // if no sequence is running, the pages suffice for any sequence
    meanwhile();
    return !scheduler_.idle();
  }
  const auto tokens = compute(meanwhile);
  const Matrix logits = step_.needs_logits() ? runner_.logits(step_.on_host) : Matrix();
  draw(logits);
  count_step();
  collect(logits, tokens, emit);
  for (auto& part : ahead_.plan.parts) {
    if (part.sequence != nullptr && part.sequence->finished()) part.sequence = nullptr;
  }
  if (!ahead_.started) scheduler_.follow();
  scheduler_.retire();
  drop_ahead();
  return !scheduler_.idle();
}

bool Engine::compose() {
  drop_ahead();
  std::swap(step_, ahead_);
  ahead_.started = false;
  ahead_.plan.parts.clear();
  if (step_.started) return true;
  scheduler_.admit(now());
  scheduler_.compose(step_.plan, batch_);
  if (step_.plan.parts.empty()) return false;
  scheduler_.started(step_.plan);
  step_.rows = batch_.rows();
  step_.begin = now();
  for (const auto& part : step_.plan.parts) {
    Group& group = part.sequence->group();
    if (group.first_step < 0) group.first_step = step_.begin;
  }
  ask_for_draws(step_);
  return true;
}

void Engine::drop_ahead() {
  const auto ended = [](const Scheduler::Part& part) { return part.sequence == nullptr; };
  if (!ahead_.started || !std::all_of(ahead_.plan.parts.begin(), ahead_.plan.parts.end(), ended)) return;
  ahead_.started = false;
  runner_.finish();
}

std::span<const int32_t> Engine::compute(FunctionRef<void()> meanwhile) {
  const auto beside = [&] {
    for (const auto& part : step_.plan.parts) {
      if (part.sequence != nullptr && part.completes()) part.sequence->prepare_mask();
    }
    meanwhile();
    scheduler_.admit(now());
  };
  try {
    if (!runner_.runs_ahead()) return runner_.run(batch_.batch(), beside);
    if (!step_.started) runner_.start(batch_.batch());
    beside();
    start_ahead();
    return runner_.finish();
  } catch (...) {
    runner_.abandon();
    scheduler_.failed(step_.plan);
    scheduler_.failed(ahead_.plan);
    ahead_.started = false;
    ahead_.plan.parts.clear();
    throw;
  }
}

// Starts the next step if its only unknowns are tokens that the device chooses itself.
void Engine::start_ahead() {
  if (step_.needs_logits() || !scheduler_.compose_ahead(step_.plan, ahead_.plan, batch_) || !draws_ahead(ahead_)) {
    ahead_.plan.parts.clear();
    return;
  }
  ahead_.on_host.assign(ahead_.plan.parts.size(), 0);
  ahead_.rows = batch_.rows();
  runner_.start(batch_.batch());
  scheduler_.started(ahead_.plan);
  ahead_.started = true;
}

// True if the device can sample for all sequences before the host knows their previous tokens.
bool Engine::draws_ahead(const Step& step) {
  DrawTables& draws = runner_.draws();
  const auto& parts = step.plan.parts;
  for (size_t row = 0; row < parts.size(); ++row) {
    const Sequence& s = *parts[row].sequence;
    if (s.wants_likeliest() || draws.set(static_cast<int64_t>(row), s.sampler(), 1)) continue;
    draws.clear();
    return false;
  }
  return true;
}

void Engine::count_step() {
  const double end = now(), seconds = end - step_.begin;
  ahead_.begin = end;
  pacer_.record(step_.plan.decodes, step_.plan.chunk, step_.plan.chunk_past, seconds * 1e6);
  ++totals_.steps;
  totals_.steps_ahead += step_.started ? 1 : 0;
  totals_.busy_seconds += seconds;
  totals_.step_ms += (seconds * 1e3 - totals_.step_ms) * (totals_.steps == 1 ? 1 : 0.1);
  totals_.step_rows = step_.rows;
  const std::optional<double> watts = power_.watts(end);
  if (watts) totals_.joules = totals_.joules.value_or(0) + *watts * seconds;
  for (const auto& part : step_.plan.parts) {
    if (part.sequence == nullptr) continue;  // ended while the step ran
    const double share = seconds * (part.rows + part.branch_rows) / static_cast<double>(step_.rows);
    part.sequence->compute_ms += share * 1e3;
    if (watts) part.sequence->joules = part.sequence->joules.value_or(0) + *watts * share;
  }
}

void Engine::fill(EngineStats& stats) {
  const double tokens_per_second = stats.tokens_per_second;
  stats = totals_;
  stats.tokens_per_second = tokens_per_second;
  stats.running = static_cast<int64_t>(running());
  stats.waiting = static_cast<int64_t>(waiting());
  const BlockPool& pool = runner_.state().blocks();
  stats.kv_blocks = pool.size();
  stats.kv_blocks_cached = scheduler_.tree().evictable();
  stats.snapshots = scheduler_.tree().snapshots();
  if (stats.snapshots > 0)
    stats.snapshot_bytes = stats.snapshots * static_cast<int64_t>(runner_.state().slot(0).stride);
  stats.kv_blocks_used = pool.size() - pool.free() - stats.kv_blocks_cached;
  for (const auto& s : scheduler_.running())
    stats.streams.push_back({s->id(), s->choice(), s->client(), s->prompt_length(), s->computed(), s->generated()});
  stats.prompt_tokens = scheduler_.prompt_tokens();
  stats.cached_tokens = scheduler_.cached_tokens();
  stats.preemptions = scheduler_.preemptions();
  stats.evicted_blocks = scheduler_.evicted();
  if (parking_) stats.parked = parking_->stats();
}

}  // namespace millrace
