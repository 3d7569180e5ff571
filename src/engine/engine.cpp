#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"
#include "engine/step_cost.h"

namespace millrace {
namespace {

// Cost of a token for its client: a generated token needs a step of its own, tokens of a prompt share steps.
constexpr double kPromptToken = 1, kGeneratedToken = 2;

constexpr int32_t kMostChoices = 128;

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
                  .drafts_by_cost = options.drafts_by_cost,
                  .draft_margin = draft_margin(runner),
                  .runs_ahead = runner.runs_ahead(),
                  .last_chunk = last_chunk(runner),
                  .whole_prompts = runner.model().pools(),
                  .same_chunks = !runner.options().batch_invariant},
                 pacer_),
      batch_(runner.options().rows, runner.options().sequences, runner.options().logit_rows),
      forked_(static_cast<size_t>(runner.model().config().vocab)),
      pooling_(read_pooling(runner.source())) {
  for (Step* step : {&step_, &ahead_}) {
    step->plan.parts.reserve(static_cast<size_t>(runner.options().sequences));
    step->on_host.reserve(static_cast<size_t>(runner.options().logit_rows));
  }
  drawing_.reserve(static_cast<size_t>(runner.options().sequences));
}

Engine::~Engine() {
  if (ahead_.started) runner_.abandon();
}

void Engine::check(const Request& r) const {
  validate(r.sampling);
  const int64_t vocab = runner_.model().config().vocab, context = runner_.options().context;
  if (r.prompt.empty()) fail(ErrorKind::Usage, "the prompt is empty: there is no token to start from");
  for (const int32_t token : r.prompt) {
    if (token < 0 || token >= vocab) fail(ErrorKind::Usage, "token {} is not in the vocabulary of {}", token, vocab);
  }
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  const bool generates = r.kind == RequestKind::Generate;
  if (runner_.model().pools() && r.kind != RequestKind::Embed)
    fail(ErrorKind::Usage, "this model makes {}: it cannot generate or score text",
         runner_.model().pools_to_scores() ? "scores of pairs of texts" : "embeddings");
  if (runner_.model().pools() && r.on_row != nullptr)
    fail(ErrorKind::Usage, "this model gives one vector for a text, not one for each token");
  if (prompt > context || (generates && prompt == context)) {
    fail(ErrorKind::Usage, "This model's maximum context length is {} tokens; the prompt has {}", context, prompt);
  }
  if (r.choices < 1 || r.choices > kMostChoices)
    fail(ErrorKind::Usage, "{} choices: from 1 to {} are possible", r.choices, kMostChoices);
  if (!generates && r.choices != 1)
    fail(ErrorKind::Usage, "{} choices: a prompt that generates nothing has one", r.choices);
  if (!r.constraints.empty() && r.constraints.size() != static_cast<size_t>(r.choices))
    fail(ErrorKind::Usage, "{} constraints for {} choices", r.constraints.size(), r.choices);
  if (r.prompt_logprobs > kMostLogprobs)
    fail(ErrorKind::Usage, "{} log-probabilities for each token of the prompt: at most {}", r.prompt_logprobs,
         kMostLogprobs);
  if (r.max_tokens < 0 || r.min_tokens < 0) fail(ErrorKind::Usage, "a negative number of tokens cannot be generated");
}

std::unique_ptr<Sequence> Engine::prepare(Request request) {
  check(request);
  const Model& model = runner_.model();
  if (request.pooling == Pooling::OfModel)
    request.pooling = pooling_.kind == PoolKind::Last ? Pooling::Last : Pooling::Mean;
  if (model.pools_to_scores()) request.normalise = false;
  if (!request.normalise) request.normalise = pooling_.normalise;
  if (!model.has_token_types()) request.second = 0;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = runner_.options().context - prompt;
  const int64_t wanted = request.kind != RequestKind::Generate ? 0
                         : request.max_tokens > 0              ? std::min<int64_t>(request.max_tokens, room)
                                                               : room;
  auto group = std::make_shared<Group>();
  group->id = next_id_.fetch_add(1);
  group->arrival = now();
  for (int32_t choice = 1; choice < request.choices; ++choice) group->unborn.push_back(choice);
  group->request = std::move(request);
  const auto longest = static_cast<int32_t>(prompt + wanted);
  const auto make = [&](int32_t choice) {
    return std::make_unique<Sequence>(group, choice, runner_.state().new_table(longest), longest,
                                      runner_.model().config().vocab, most_drafts(group->request), model.pools());
  };
  auto first = make(0);
  for (const int32_t choice : group->unborn) first->add_choice(make(choice));
  return first;
}

int32_t Engine::most_drafts(const Request& request) const {
  if (request.kind != RequestKind::Generate) return 0;
  return request.draft_tokens < 0 ? draft_tokens_ : std::min(request.draft_tokens, draft_tokens_);
}

RequestId Engine::submit(std::unique_ptr<Sequence> prepared) {
  const RequestId id = prepared->id();
  ++totals_.requests;
  scheduler_.add(std::move(prepared));
  return id;
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
    const double share = seconds * part.rows / static_cast<double>(step_.rows);
    part.sequence->compute_ms += share * 1e3;
    if (watts) part.sequence->joules = part.sequence->joules.value_or(0) + *watts * share;
  }
}

// A GPU samples tokens itself. Logits are copied only for rows that need the host: masks, log-probabilities, scores,
// and first tokens of several choices.
void Engine::ask_for_draws(Step& step) {
  step.on_host.clear();
  for (const auto& part : step.plan.parts) {
    const auto first = static_cast<int64_t>(step.on_host.size());
    const uint8_t on_host = draws_on_device(part, first) ? 0 : 1;
    step.on_host.insert(step.on_host.end(), static_cast<size_t>(part.logits.size()), on_host);
  }
}

// All rows of a sequence or none: the sample of a row may depend on the rows before it.
bool Engine::draws_on_device(const Scheduler::Part& part, int64_t logit_row) {
  DrawTables& draws = runner_.draws();
  const Sequence& s = *part.sequence;
  if (!draws.usable() || !part.completes() || !s.needs_token_only()) return false;
  return s.wants_likeliest() || draws.set(logit_row, s.sampler(), 0, part.logits.size());
}

// Skips prompts with several choices, whose logits are drawn from more than once (complete_prompt).
void Engine::draw(Matrix logits) {
  drawing_.clear();
  int64_t end = 0;
  for (const auto& part : step_.plan.parts) {
    end += part.logits.size();
    if (part.sequence == nullptr) continue;  // ended while the step ran
    Sequence& s = *part.sequence;
    const bool draws = part.completes() && s.request().kind == RequestKind::Generate && s.group().unborn.empty();
    if (!draws || step_.on_host[static_cast<size_t>(end - 1)] == 0) continue;
    const int64_t rows = 1 + s.drafted();  // earlier rows of a prompt are only scored
    drawing_.push_back({&s, logits.rows_from(end - rows, rows)});
  }
  ThreadPool* helpers = runner_.helpers();
  const auto draw_all = [&](int64_t first, int64_t last) {
    for (const Drawing& d : std::span(drawing_).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)))
      d.sequence->draw(d.logits, drawing_.size() == 1 ? helpers : nullptr);
  };
  if (helpers == nullptr) return draw_all(0, std::ssize(drawing_));
  helpers->parallel_for(std::ssize(drawing_), 1, draw_all);
}

void Engine::collect(Matrix logits, std::span<const int32_t> tokens, FunctionRef<void(const Emission&)> emit) {
  const Matrix hidden = runner_.hidden();
  int64_t logit_row = 0, hidden_row = 0;
  for (const auto& part : step_.plan.parts) {
    const int64_t first = logit_row;
    logit_row += part.logits.size();
    if (part.sequence == nullptr) continue;
    Sequence& s = *part.sequence;
    if (s.generating()) {
      take_generated(part, first, tokens, emit);
      continue;
    }
    const bool completes = part.completes();
    const bool chosen = part.logits.size() > 0 && step_.on_host[static_cast<size_t>(first)] == 0;
    const int32_t scored = std::min(part.logits.end, completes && !s.wants_every_row() ? part.rows - 1 : part.rows);
    for (int32_t row = part.logits.begin; row < scored; ++row) {
      const float* values = logits.row<float>(first + row - part.logits.begin);
      s.take_prompt_logits(s.computed() + row, {values, static_cast<size_t>(logits.cols)});
    }
    for (int32_t row = part.hidden.begin; row < part.hidden.end; ++row, ++hidden_row)
      s.take_hidden(s.computed() + row, {hidden.row<float>(hidden_row), static_cast<size_t>(hidden.cols)});
    scheduler_.charge(s.client(), kPromptToken * part.rows);
    scheduler_.advance(s, part.rows);
    if (!completes) continue;
    if (chosen) {
      ++totals_.generated_tokens;
      emit_with_times(s.take_drawn(tokens[static_cast<size_t>(first)]), s, emit);
    } else {
      complete_prompt(s, logits.rows_from(logit_row - 1, 1), emit);
    }
  }
}

// Takes tokens row by row. A row's token is chosen as without drafts; the next row counts only if its draft equals that
// token.
void Engine::take_generated(const Scheduler::Part& part, int64_t logit_row, std::span<const int32_t> tokens,
                            FunctionRef<void(const Emission&)> emit) {
  Sequence& s = *part.sequence;
  const bool on_host = step_.on_host[static_cast<size_t>(logit_row)] != 0;
  const int32_t drafted = s.drafted();
  int32_t taken = 0;
  for (bool is_draft = true; is_draft && !s.finished(); ++taken) {
    const auto row = static_cast<size_t>(taken);
    const int32_t token = on_host ? s.drawn()[row] : tokens[static_cast<size_t>(logit_row) + row];
    is_draft = token == s.next_draft();
    scheduler_.advance(s, 1);
    emit_with_times(on_host ? s.take_own(row) : s.take_drawn(token), s, emit);
  }
  totals_.generated_tokens += static_cast<uint64_t>(taken);
  totals_.drafted_tokens += static_cast<uint64_t>(drafted);
  totals_.accepted_tokens += static_cast<uint64_t>(taken - 1);
  s.draft_history.record(drafted, taken - 1);
  scheduler_.charge(s.client(), kGeneratedToken * taken);
  if (taken <= drafted) scheduler_.truncate(s);
}

// The prompt is computed: draws the first token, for all choices of the request.
void Engine::complete_prompt(Sequence& s, Matrix logits, FunctionRef<void(const Emission&)> emit) {
  if (s.request().kind != RequestKind::Generate) return emit_with_times(s.end_of_prompt(), s, emit);
  std::vector<int32_t> unborn;
  unborn.swap(s.group().unborn);
  if (!unborn.empty()) {
    std::copy_n(logits.row<float>(0), logits.cols, forked_.begin());
    s.draw(logits, runner_.helpers());
  }
  ++totals_.generated_tokens;
  emit_with_times(s.take_own(0), s, emit);
  for (const int32_t choice : unborn) {
    Sequence* child = scheduler_.fork(s, choice);
    if (child == nullptr) continue;
    child->prepare_mask();
    std::copy_n(forked_.begin(), logits.cols, logits.row<float>(0));  // drawing overwrites the logits
    ++totals_.generated_tokens;
    child->draw(logits, runner_.helpers());
    emit_with_times(child->take_own(0), *child, emit);
  }
}

void Engine::emit_with_times(Emission emission, Sequence& s, FunctionRef<void(const Emission&)> emit) {
  emission.queued_ms = (s.group().first_step - s.arrival()) * 1e3;
  if (emission.finish != FinishReason::None) ++totals_.finished[emission.finish];
  emit(emission);
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
}

}  // namespace millrace
