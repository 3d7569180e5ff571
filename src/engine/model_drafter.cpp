#include "engine/model_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "engine/step_cost.h"

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
  LoadOptions load = main.options();
  load.architecture = nullptr;
  load.forced.clear();
  load.adapter_files.clear();
  load.adapters = false;
  load.gpu_memory = 0;
  load.heads.reset();
  load.batch_invariant = false;
  load.logit_rows = load.sequences;
  load.device_draws = true;  // chains need the likeliest token only
  load.context = 0;          // its own, or that of the main model if it is shorter
  auto planned = std::make_unique<Runner>(draft, load);
  if (planned->options().context <= main.options().context) return planned;
  load.context = main.options().context;
  return std::make_unique<Runner>(draft, load);
}

ModelDrafter::ModelDrafter(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)),
      estimate_(estimate_steps(*runner_, /*drafts=*/false)),
      vocab_(static_cast<int32_t>(runner_->model().config().vocab)),
      longest_(longest_sequence(*runner_)),
      batch_(runner_->options().rows, runner_->options().sequences, runner_->options().logit_rows) {
  if (runner_->state().has_slots()) {
    fail(ErrorKind::Unsupported, "{}: has recurrent state, which a draft model cannot have",
         runner_->source().origin());
  }
  const auto sequences = static_cast<size_t>(runner_->options().sequences);
  followed_.reserve(sequences);
  for (size_t i = 0; i < sequences; ++i)
    followed_.emplace_back(runner_->state().new_table(static_cast<int32_t>(runner_->options().context)));
  asked_.reserve(sequences);
  chains_.reserve(sequences);
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
ModelDrafter::Followed* ModelDrafter::follow(const DraftAsk& ask) {
  const auto known = std::find_if(followed_.begin(), followed_.end(),
                                  [&](const Followed& f) { return f.used && f.sequence == ask.sequence; });
  if (known != followed_.end()) return &*known;
  const auto unused = std::find_if(followed_.begin(), followed_.end(), [](const Followed& f) { return !f.used; });
  if (unused == followed_.end()) return nullptr;
  unused->used = true;
  unused->sequence = ask.sequence;
  return &*unused;
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
void ModelDrafter::add_pending(DraftAsk& ask, Followed& f) {
  const auto length = static_cast<int32_t>(ask.tokens.size()), drafts = static_cast<int32_t>(ask.draft.size());
  const auto room = static_cast<int32_t>(runner_->options().rows - batch_.rows());
  const int32_t rows = std::min(length - f.computed, room);
  if (rows <= 0 || length + drafts > longest_) return;
  const auto pending = ask.tokens.subspan(static_cast<size_t>(f.computed), static_cast<size_t>(rows));
  const bool known = std::all_of(pending.begin(), pending.end(), [&](int32_t token) { return takes(token); });
  if (!known || !f.table.reserve(length + drafts)) return;
  const bool completes = f.computed + rows == length;
  const auto logits = completes ? StepBatch::Logits::Last : StepBatch::Logits::None;
  batch_.add(pending, f.computed, length, f.table.pages(), logits);
  f.computed = f.known = f.computed + rows;
  if (completes) chains_.push_back({&ask, &f});
}

// Appends the likeliest token of each row of the step to its draft.
void ModelDrafter::extend() {
  const auto tokens = runner_->run(batch_.batch());
  for (size_t i = 0; i < chains_.size(); ++i) {
    const auto [ask, f] = chains_[i];
    if (!takes(tokens[i])) continue;  // no logit is a number: the draft ends here
    ask->draft[static_cast<size_t>(ask->given++)] = tokens[i];
    f->drafted.push_back(tokens[i]);
  }
}

void ModelDrafter::draft_all(std::span<DraftAsk> asks) {
  batch_.clear();
  asked_.clear();
  chains_.clear();
  for (DraftAsk& ask : asks) {
    ask.given = 0;
    ask.draft = ask.draft.first(std::min<size_t>(ask.draft.size(), kMostTokens));
    Followed* f = ask.draft.empty() ? nullptr : follow(ask);
    if (f == nullptr) continue;
    drop_rejected(*f, ask.tokens);
    asked_.push_back({&ask, f});
  }
  // Prompts take the rows that sequences with a complete cache leave, and may need several steps.
  for (const bool prompts : {false, true}) {
    for (const auto& [ask, f] : asked_) {
      const bool is_prompt = std::ssize(ask->tokens) - f->computed > 1 + kMostTokens;
      if (is_prompt == prompts && f->computed < std::ssize(ask->tokens)) add_pending(*ask, *f);
    }
  }
  if (batch_.empty()) return;
  extend();
  for (int32_t pass = 1;; ++pass) {
    const auto over = [&](const Chain& c) { return c.ask->given < pass || pass == std::ssize(c.ask->draft); };
    std::erase_if(chains_, over);
    if (chains_.empty()) return;
    batch_.clear();
    for (const auto& [ask, f] : chains_) {
      const int32_t token = f->drafted.back();
      batch_.add({&token, 1}, f->computed, f->computed + 1, f->table.pages(), StepBatch::Logits::Last);
      ++f->computed;
    }
    extend();
  }
}

}  // namespace millrace
