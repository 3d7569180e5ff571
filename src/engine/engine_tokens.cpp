// The end of a step: which rows the host draws, and what each sequence takes from the results.
#include <algorithm>

#include "engine/engine.h"

namespace millrace {
namespace {

// Cost of a token for its client: a generated token needs a step of its own, tokens of a prompt share steps.
constexpr double kPromptToken = 1, kGeneratedToken = 2;

}  // namespace

// A GPU samples tokens itself. Logits are copied only for rows that need the host: masks, log-probabilities, scores,
// and first tokens of several choices.
void Engine::ask_for_draws(Step& step) {
  step.on_host.clear();
  for (const auto& part : step.plan.parts) {
    const auto first = static_cast<int64_t>(step.on_host.size());
    const uint8_t on_host = draws_on_device(part, first) ? 0 : 1;
    step.on_host.insert(step.on_host.end(), static_cast<size_t>(part.logit_rows()), on_host);
  }
}

// All rows of a sequence or none: the sample of a row may depend on the rows before it.
bool Engine::draws_on_device(const Scheduler::Part& part, int64_t logit_row) {
  DrawTables& draws = runner_.draws();
  const Sequence& s = *part.sequence;
  if (!draws.usable() || !part.completes() || !s.needs_token_only()) return false;
  if (s.wants_likeliest()) return true;
  if (!draws.set(logit_row, s.sampler(), 0, part.logits.size())) return false;
  for (const DraftBranch& branch : s.branches()) {
    // Without penalties and biases every row can be drawn if one can.
    MR_ASSERT(branch.rows() == 0 || draws.set(logit_row + branch.row, s.sampler(), 0, branch.rows()));
  }
  return true;
}

// Skips prompts with several choices, whose logits are drawn from more than once (complete_prompt).
void Engine::draw(Matrix logits) {
  drawing_.clear();
  int64_t end = 0;
  for (const auto& part : step_.plan.parts) {
    end += part.logit_rows();
    if (part.sequence == nullptr) continue;  // ended while the step ran
    Sequence& s = *part.sequence;
    const bool draws = part.completes() && s.request().kind == RequestKind::Generate && s.group().unborn.empty();
    if (!draws || step_.on_host[static_cast<size_t>(end - 1)] == 0) continue;
    const int64_t rows = 1 + s.drafted() + part.branch_rows;  // earlier rows of a prompt are only scored
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
    logit_row += part.logit_rows();
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
      complete_prompt(s, part.logits.size() > 0 ? logits.rows_from(logit_row - 1, 1) : Matrix(), emit);
    }
  }
}

// Takes tokens row by row. A row's token is chosen as without drafts; the next row counts only if its draft equals that
// token. The first token decides whether the rows of a branch follow.
void Engine::take_generated(const Scheduler::Part& part, int64_t logit_row, std::span<const int32_t> tokens,
                            FunctionRef<void(const Emission&)> emit) {
  Sequence& s = *part.sequence;
  const bool on_host = step_.on_host[static_cast<size_t>(logit_row)] != 0;
  int32_t verified = s.drafted();
  for (const DraftBranch& branch : s.branches()) verified += static_cast<int32_t>(branch.draft().size());
  const int32_t first = on_host ? s.drawn().front() : tokens[static_cast<size_t>(logit_row)];
  const int32_t skipped = scheduler_.choose_branch(s, first), drafted = s.drafted();
  int32_t taken = 0;
  for (bool is_draft = true; is_draft && !s.finished(); ++taken) {
    const auto row = static_cast<size_t>(taken);
    const int32_t device_row = static_cast<int32_t>(logit_row) + (taken > 0 ? skipped + taken : 0);
    const int32_t token = on_host ? s.drawn()[row] : tokens[static_cast<size_t>(device_row)];
    is_draft = token == s.next_draft();
    scheduler_.advance(s, 1);
    emit_with_times(on_host ? s.take_own(row) : s.take_drawn(token), s, emit);
  }
  totals_.generated_tokens += static_cast<uint64_t>(taken);
  totals_.drafted_tokens += static_cast<uint64_t>(verified);
  totals_.accepted_tokens += static_cast<uint64_t>(taken - 1);
  s.draft_history.record(drafted, taken - 1, /*branched=*/skipped > 0);
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

}  // namespace millrace
