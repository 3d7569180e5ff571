#include "engine/head_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "engine/measure/speculation.h"
#include "engine/step_cost.h"
#include "models/draft_heads.h"

namespace millrace {

std::unique_ptr<Runner> HeadDrafter::plan(const Runner& target, const std::shared_ptr<const WeightSource>& heads) {
  if (target.rank().uses_host())
    fail(ErrorKind::Unsupported, "{}: heads cannot draft for a model of which a part stays in host memory",
         heads->origin());
  LoadOptions load = target.options();
  load.adapter_files.clear();
  load.adapters = false;
  load.architecture = nullptr;
  load.forced.clear();
  load.gpu_memory = load.cpu_memory = 0;
  load.kv_type.reset();
  load.batch_invariant = false;
  load.logit_rows = load.sequences;
  load.device_draws = true;   // chains need the likeliest token only
  load.past_training = true;  // positions are the target's
  load.heads.reset();
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
    : target_(target),
      runner_(std::move(heads)),
      estimate_(estimate_steps(*runner_, /*drafts=*/false)),
      vocabulary_(draft_vocabulary(runner_->source(), target.model().config().vocab)),
      vocab_(static_cast<int32_t>(target.model().config().vocab)),
      batch_(runner_->options().rows, runner_->options().sequences, runner_->options().logit_rows) {
  MR_ASSERT(runner_->state().blocks().size() == target.state().blocks().size() && !runner_->state().has_slots());
  feature_rows_.reserve(static_cast<size_t>(runner_->options().rows));
  const auto sequences = static_cast<size_t>(runner_->options().sequences);
  leads_.reserve(sequences);
  chains_.reserve(sequences);
  target_.state().mirror_in(&runner_->state());
}

HeadDrafter::~HeadDrafter() { target_.state().mirror_in(nullptr); }

void HeadDrafter::forget(uint64_t sequence) {
  std::erase_if(leads_, [&](const Lead& lead) { return lead.sequence == sequence; });
}

// -1: no logit is a number, for example behind pages whose rows here were never written.
int32_t HeadDrafter::target_token(int32_t row) const {
  if (vocabulary_.empty()) return row < vocab_ ? row : -1;
  return row >= 0 && row < std::ssize(vocabulary_) ? vocabulary_[static_cast<size_t>(row)] : -1;
}

std::span<const int32_t> HeadDrafter::run(Matrix features, bool own) {
  Batch batch = batch_.batch();
  batch.features = {features, feature_rows_, own};
  return runner_->run(batch);
}

// The row of position i takes the target's hidden state there and the token at i + 1, so that its logits belong to the
// token at i + 2.
void HeadDrafter::follow(std::span<const FollowedRows> sequences) {
  leads_.clear();
  batch_.clear();
  feature_rows_.clear();
  for (const FollowedRows& s : sequences) {
    const auto length = static_cast<int32_t>(s.tokens.size());
    const int32_t rows = std::min(s.rows, length - 1 - s.position);
    if (rows <= 0) continue;
    const auto tokens = s.tokens.subspan(static_cast<size_t>(s.position) + 1, static_cast<size_t>(rows));
    const bool leads = s.drafts && s.position + rows == length - 1;
    batch_.add(tokens, s.position, length, s.pages, leads ? StepBatch::Logits::Last : StepBatch::Logits::None);
    for (int32_t i = 0; i < rows; ++i) feature_rows_.push_back(s.row + i);
    if (leads) leads_.push_back({s.sequence, s.tokens.size(), -1, static_cast<int32_t>(leads_.size())});
  }
  if (batch_.empty()) return;
  const auto tokens = run(target_.features(), /*own=*/false);
  for (size_t i = 0; i < leads_.size(); ++i) leads_[i].token = target_token(tokens[i]);
}

void HeadDrafter::draft_all(std::span<DraftAsk> asks) {
  chains_.clear();
  for (DraftAsk& ask : asks) {
    ask.given = 0;
    const auto lead =
        std::find_if(leads_.begin(), leads_.end(), [&](const Lead& known) { return known.sequence == ask.sequence; });
    if (lead == leads_.end() || lead->token < 0 || lead->length != ask.tokens.size() || ask.draft.empty()) continue;
    ask.draft[static_cast<size_t>(ask.given++)] = lead->token;
    chains_.push_back({&ask, lead->row});
  }
  for (int32_t pass = 1;; ++pass) {
    std::erase_if(chains_, [&](const Chain& c) { return c.ask->given < pass || pass == std::ssize(c.ask->draft); });
    if (chains_.empty()) return;
    batch_.clear();
    feature_rows_.clear();
    for (Chain& chain : chains_) {
      const auto past = static_cast<int32_t>(chain.ask->tokens.size()) - 2 + pass;
      batch_.add({&chain.ask->draft[static_cast<size_t>(pass) - 1], 1}, past, past + 1, chain.ask->pages,
                 StepBatch::Logits::Last);
      feature_rows_.push_back(chain.row);
    }
    const auto tokens = run(runner_->features(), /*own=*/true);
    for (size_t i = 0; i < chains_.size(); ++i) {
      Chain& chain = chains_[i];
      chain.row = static_cast<int32_t>(i);
      const int32_t token = target_token(tokens[i]);
      if (token >= 0) chain.ask->draft[static_cast<size_t>(chain.ask->given++)] = token;
    }
  }
}

}  // namespace millrace
