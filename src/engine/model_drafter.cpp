#include "engine/model_drafter.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {
namespace {

int32_t longest_sequence(const Runner& runner) {
  const int64_t context = runner.options().context, long_from = runner.model().long_from();
  return static_cast<int32_t>(long_from > 0 ? std::min(context, long_from) : context);
}

}  // namespace

void ModelDrafter::check_vocabulary(const Tokenizer& main, const Tokenizer& draft, const std::string& name) {
  const int32_t size = std::max(main.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    if (main.token_text(id) == draft.token_text(id)) continue;
    fail(ErrorKind::Usage, "{}: cannot draft for this model, because token {} is '{}' there and '{}' here", name, id,
         draft.token_text(id), main.token_text(id));
  }
}

std::unique_ptr<Runner> ModelDrafter::plan(const Runner& main, const std::shared_ptr<const WeightSource>& draft) {
  LoadOptions load = options_beside(main);
  load.context = 0;  // its own, or that of the main model if it is shorter
  auto planned = std::make_unique<Runner>(draft, load);
  if (planned->options().context <= main.options().context) return planned;
  load.context = main.options().context;
  return std::make_unique<Runner>(draft, load);
}

ModelDrafter::ModelDrafter(std::unique_ptr<Runner> runner)
    : RunnerDrafter(std::move(runner)),
      vocab_(static_cast<int32_t>(runner_->model().config().vocab)),
      longest_(longest_sequence(*runner_)) {
  if (runner_->state().has_slots()) {
    fail(ErrorKind::Unsupported, "{}: has recurrent state, which a draft model cannot have",
         runner_->source().origin());
  }
  const auto sequences = static_cast<size_t>(runner_->options().sequences);
  followed_.reserve(sequences);
  for (size_t i = 0; i < sequences; ++i)
    followed_.emplace_back(runner_->state().new_table(static_cast<int32_t>(runner_->options().context)));
  asked_.reserve(sequences);
}

void ModelDrafter::forget(uint64_t sequence) {
  for (Followed& f : followed_) {
    if (!f.used || f.sequence != sequence) continue;
    f.table.clear();
    f.drafted.clear();
    f.computed = f.known = 0;
    f.used = false;
  }
}

// The engine runs as many sequences as there are entries, and forgets those that end.
int32_t ModelDrafter::find(const DraftAsk& ask) {
  auto entry = std::find_if(followed_.begin(), followed_.end(),
                            [&](const Followed& f) { return f.used && f.sequence == ask.sequence; });
  if (entry == followed_.end())
    entry = std::find_if(followed_.begin(), followed_.end(), [](const Followed& f) { return !f.used; });
  if (entry == followed_.end()) return -1;
  entry->used = true;
  entry->sequence = ask.sequence;
  return static_cast<int32_t>(entry - followed_.begin());
}

// Rows of rejected draft tokens are computed again. The last token of a sequence is always computed again, because its
// logits are wanted.
void ModelDrafter::drop_rejected(Followed& f, std::span<const int32_t> tokens) {
  const auto length = static_cast<int32_t>(tokens.size());
  int32_t right = std::min(f.known, length);
  for (const int32_t drafted : f.drafted) {
    if (right >= length || tokens[static_cast<size_t>(right)] != drafted) break;
    ++right;
  }
  f.computed = f.known = std::min({f.computed, right, length - 1});
  f.drafted.clear();
}

// Adds the tokens of a sequence that its cache lacks, as many as the step has rows left. If these are all, the step
// gives the first token of its draft.
void ModelDrafter::add_pending(const Chain& asked) {
  const DraftAsk& ask = *asked.ask;
  Followed& f = followed(asked);
  const auto length = static_cast<int32_t>(ask.tokens.size()), drafts = static_cast<int32_t>(ask.draft.size());
  const auto room = static_cast<int32_t>(runner_->options().rows - batch_.rows());
  const int32_t rows = std::min(length - f.computed, room);
  if (rows <= 0 || length + drafts > longest_) return;
  const auto pending = ask.tokens.subspan(static_cast<size_t>(f.computed), static_cast<size_t>(rows));
  const bool known = std::all_of(pending.begin(), pending.end(), [&](int32_t token) { return token_of(token) >= 0; });
  if (!known || !f.table.reserve(length + drafts)) return;
  const bool completes = f.computed + rows == length;
  const bool is_prompt = rows > 1 + kMostTokens;  // else attention treats them as the drafts that most of them were
  const StepBatch::Rows logits{completes ? rows - 1 : rows, rows};
  batch_.add(pending, f.computed, length, f.table.pages(), logits, {}, /*slot=*/-1, /*drafts=*/rows > 1 && !is_prompt);
  f.computed = f.known = f.computed + rows;
  if (completes) chains_.push_back(asked);
}

void ModelDrafter::add_row(Chain& chain, int32_t pass) {
  Followed& f = followed(chain);
  batch_.add({&chain.ask->draft[static_cast<size_t>(pass) - 1], 1}, f.computed, f.computed + 1, f.table.pages(),
             StepBatch::Logits::Last);
  ++f.computed;
}

void ModelDrafter::draft_all(std::span<DraftAsk> asks) {
  batch_.clear();
  asked_.clear();
  chains_.clear();
  for (DraftAsk& ask : asks) {
    ask.given = 0;
    ask.draft = ask.draft.first(std::min<size_t>(ask.draft.size(), kMostTokens));
    const int32_t entry = ask.draft.empty() ? -1 : find(ask);
    if (entry < 0) continue;
    asked_.push_back({&ask, entry});
    drop_rejected(followed(asked_.back()), ask.tokens);
  }
  // Prompts take the rows that sequences with a complete cache leave, and may need several steps.
  for (const bool prompts : {false, true}) {
    for (const Chain& asked : asked_) {
      const int64_t pending = std::ssize(asked.ask->tokens) - followed(asked).computed;
      if (pending > 0 && (pending > 1 + kMostTokens) == prompts) add_pending(asked);
    }
  }
  if (batch_.empty()) return;
  take(run_rows());
  extend_chains();
  for (const Chain& asked : asked_) {
    const auto draft = asked.ask->draft.first(static_cast<size_t>(asked.ask->given));
    followed(asked).drafted.assign(draft.begin(), draft.end());
  }
}

}  // namespace millrace
