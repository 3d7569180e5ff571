#include "engine/head_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "engine/measure/speculation.h"
#include "engine/step_cost.h"
#include "models/draft_heads.h"

namespace millrace {

static_assert(kMostBranches <= ArgmaxOp::kMostSkipped);

std::unique_ptr<Runner> HeadDrafter::plan(const Runner& target, const std::shared_ptr<const WeightSource>& heads) {
  if (target.rank().uses_host())
    fail(ErrorKind::Unsupported, "{}: heads cannot draft for a model of which a part stays in host memory",
         heads->origin());
  LoadOptions load = options_beside(target);
  load.kv_type.reset();
  load.past_training = true;  // positions are the target's
  load.drafts_for = {&target.model(), target.rank().working()};
  return std::make_unique<Runner>(heads, load);
}

bool HeadDrafter::pays(Runner& target, Runner& heads) {
  constexpr double kAcceptance = 0.6, kMargin = 1.03;
  constexpr int64_t kContext = 1024;
  const StepEstimate steps = estimate_steps(target, /*drafts=*/true);
  const double pass = estimate_steps(heads, /*drafts=*/false).us(1, 0, 0, 0), alone = steps.verify_us(1, kContext, {});
  for (int32_t draft = 1; draft <= 4; ++draft) {
    const double us = steps.verify_us(1, kContext, {draft, 1, draft}) + draft * pass;
    if (tokens_per_step(draft, kAcceptance) * alone > kMargin * us) return true;
  }
  return false;
}

HeadDrafter::HeadDrafter(Runner& target, std::unique_ptr<Runner> heads)
    : RunnerDrafter(std::move(heads)),
      target_(target),
      vocabulary_(draft_vocabulary(runner_->source(), target.model().config().vocab)),
      vocab_(static_cast<int32_t>(target.model().config().vocab)) {
  MR_ASSERT(runner_->state().blocks().size() == target.state().blocks().size() && !runner_->state().has_slots());
  feature_rows_.reserve(static_cast<size_t>(runner_->options().rows));
  leads_.reserve(static_cast<size_t>(runner_->options().sequences));
  target_.state().mirror_in(&runner_->state());
}

HeadDrafter::~HeadDrafter() { target_.state().mirror_in(nullptr); }

void HeadDrafter::forget(uint64_t sequence) {
  std::erase_if(leads_, [&](const Lead& lead) { return lead.sequence == sequence; });
}

// -1: no logit is a number, for example behind pages whose rows here were never written.
int32_t HeadDrafter::token_of(int32_t row) const {
  if (vocabulary_.empty()) return row < vocab_ ? row : -1;
  return row >= 0 && row < std::ssize(vocabulary_) ? vocabulary_[static_cast<size_t>(row)] : -1;
}

std::span<const int32_t> HeadDrafter::run(Matrix features, bool own, int32_t alternatives) {
  Batch batch = batch_.batch();
  batch.alternatives = alternatives;
  batch.features = {features, feature_rows_, own};
  return runner_->run(batch);
}

// The row of position i takes the target's hidden state there and the token at i + 1, so that its logits belong to the
// token at i + 2.
void HeadDrafter::add_followed(const FollowedRows& s) {
  const auto length = static_cast<int32_t>(s.tokens.size());
  const int32_t rows = std::min(s.rows, length - 1 - s.position);
  if (rows <= 0) return;
  const auto tokens = s.tokens.subspan(static_cast<size_t>(s.position) + 1, static_cast<size_t>(rows));
  const bool leads = s.drafts && s.position + rows == length - 1;
  const StepBatch::Rows logits{leads ? rows - 1 : rows, rows};
  batch_.add(tokens, s.position, length, s.pages, logits, {}, /*slot=*/-1, /*drafts=*/s.decoded && rows > 1);
  for (int32_t i = 0; i < rows; ++i) feature_rows_.push_back(s.row + i);
  if (leads) leads_.push_back({s.sequence, s.tokens.size(), static_cast<int32_t>(leads_.size()), s.alternatives});
}

void HeadDrafter::follow(std::span<const FollowedRows> sequences) {
  leads_.clear();
  batch_.clear();
  feature_rows_.clear();
  // Decodes come first in a batch (Ops::attention).
  for (const bool decoded : {true, false}) {
    for (const FollowedRows& rows : sequences) {
      if (rows.decoded == decoded) add_followed(rows);
    }
  }
  if (batch_.empty()) return;
  int32_t alternatives = 0;
  for (const Lead& lead : leads_) alternatives = std::max(alternatives, lead.alternatives);
  take_leads(run(target_.features(), /*own=*/false, alternatives));
}

// `chosen`: [1 + alternatives][leads].
void HeadDrafter::take_leads(std::span<const int32_t> chosen) {
  for (size_t i = 0; i < leads_.size(); ++i) {
    Lead& lead = leads_[i];
    for (size_t rank = 0; rank <= static_cast<size_t>(lead.alternatives); ++rank) {
      lead.tokens[rank] = token_of(chosen[rank * leads_.size() + i]);
      if (lead.tokens[rank] < 0) lead.alternatives = std::max(0, static_cast<int32_t>(rank) - 1);
    }
  }
}

const HeadDrafter::Lead* HeadDrafter::lead_of(uint64_t sequence, size_t tokens) const {
  const auto found = std::find_if(leads_.begin(), leads_.end(),
                                  [&](const Lead& l) { return l.sequence == sequence && l.length == tokens; });
  return found == leads_.end() || found->tokens[0] < 0 ? nullptr : &*found;
}

std::span<const int32_t> HeadDrafter::alternatives(uint64_t sequence, size_t tokens) const {
  const Lead* lead = lead_of(sequence, tokens);
  if (lead == nullptr) return {};
  return std::span(lead->tokens).subspan(1, static_cast<size_t>(lead->alternatives));
}

void HeadDrafter::add_row(Chain& chain, int32_t pass) {
  if (batch_.empty()) feature_rows_.clear();  // those of the pass before
  const auto past = static_cast<int32_t>(chain.ask->tokens.size()) - 2 + pass;
  batch_.add({&chain.ask->draft[static_cast<size_t>(pass) - 1], 1}, past, past + 1, chain.ask->pages,
             StepBatch::Logits::Last);
  feature_rows_.push_back(chain.at);
  chain.at = static_cast<int32_t>(batch_.rows()) - 1;
}

void HeadDrafter::draft_all(std::span<DraftAsk> asks) {
  chains_.clear();
  for (DraftAsk& ask : asks) {
    ask.given = 0;
    const Lead* lead = lead_of(ask.sequence, ask.tokens.size());
    if (lead == nullptr || ask.draft.empty() || ask.branch > lead->alternatives) continue;
    ask.draft[static_cast<size_t>(ask.given++)] = lead->tokens[static_cast<size_t>(ask.branch)];
    chains_.push_back({&ask, lead->row});
  }
  extend_chains();
}

}  // namespace millrace
