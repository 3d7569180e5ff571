#include "engine/draft_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "engine/head_drafter.h"
#include "engine/lookup_drafter.h"
#include "engine/model_drafter.h"
#include "models/draft_heads.h"

namespace millrace {
namespace {

// Logits of this many rows take 33 MB for a vocabulary of 128k tokens.
constexpr int64_t kMostDraftRows = 64;

// Without a tokenizer the number of tokens is all that can be compared.
void check_vocabularies(const Runner& main, const TextModel& text, const Runner& draft, const std::string& name) {
  if (text.tokenizer != nullptr && has_tokenizer(draft.source()))
    return ModelDrafter::check_vocabulary(*text.tokenizer, *load_tokenizer(draft.source()), name);
  const int64_t here = main.model().config().vocab, there = draft.model().config().vocab;
  if (here != there)
    fail(ErrorKind::Usage, "--draft {}: cannot draft for this model: it has {} tokens, not {}", name, there, here);
}

int32_t most_tokens(DraftSource::Kind kind) {
  switch (kind) {
    case DraftSource::Kind::Lookup:
      return LookupDrafter().most_tokens();
    case DraftSource::Kind::Model:
    case DraftSource::Kind::Heads:
      return RunnerDrafter::kMostTokens;
    case DraftSource::Kind::None:
      break;
  }
  return 0;
}

using Open = FunctionRef<std::shared_ptr<const WeightSource>(const std::string&)>;

DraftSource find_drafts(const std::string& name, const std::shared_ptr<const WeightSource>& main, Open open) {
  using Kind = DraftSource::Kind;
  if (name == "none") return {};
  if (name == "lookup") return {Kind::Lookup, false, name, nullptr};
  if (name == "auto" || name == "mtp") {
    if (carries_heads(*main)) return {Kind::Heads, name == "auto", name, main};
    if (name == "auto") return {Kind::Lookup, true, name, nullptr};
    fail(ErrorKind::Usage, "--draft mtp: {} carries no heads that predict further tokens", main->origin());
  }
  auto source = open(name);
  const Kind kind = is_eagle3(*source) ? Kind::Heads : Kind::Model;
  return {kind, false, name, std::move(source)};
}

// Null: heads that were not asked for by name would not fit or not pay.
std::unique_ptr<Drafter> make_head_drafter(const DraftSource& drafts, Runner& main, FunctionRef<void(Runner&)> load) {
  if (drafts.by_default && main.rank().uses_host()) return nullptr;
  auto heads = plan_drafter(drafts, main);
  const bool fits = heads->memory().total() <= heads->memory().available;
  if (drafts.by_default && (!fits || !HeadDrafter::pays(main, *heads))) {
    log().info("the heads that predict further tokens are not used: they would {}", fits ? "not pay" : "not fit");
    return nullptr;
  }
  load(*heads);
  return std::make_unique<HeadDrafter>(main, std::move(heads));
}

}  // namespace

DraftSource open_drafts(const std::string& name, const std::shared_ptr<const WeightSource>& main, Open open,
                        LoadOptions& load) {
  DraftSource drafts = find_drafts(name, main, open);
  const int64_t each = most_tokens(drafts.kind);
  if (drafts.kind == DraftSource::Kind::Heads) {
    load.heads = drafts.source;
    load.branches = kMostBranches;
  }
  const int64_t rows = load.sequences * each + load.branches * (1 + each);
  load.logit_rows = std::max(load.logit_rows, load.sequences + std::min(kMostDraftRows, rows));
  return drafts;
}

std::unique_ptr<Runner> plan_drafter(const DraftSource& drafts, const Runner& main) {
  if (drafts.kind == DraftSource::Kind::Heads) return HeadDrafter::plan(main, drafts.source);
  return drafts.kind == DraftSource::Kind::Model ? ModelDrafter::plan(main, drafts.source) : nullptr;
}

std::unique_ptr<Drafter> make_drafter(const DraftSource& drafts, Runner& main, const TextModel& text,
                                      FunctionRef<void(Runner&)> load) {
  if (drafts.kind == DraftSource::Kind::None) return nullptr;
  if (drafts.kind == DraftSource::Kind::Heads) {
    if (auto drafter = make_head_drafter(drafts, main, load)) return drafter;
  }
  if (drafts.kind != DraftSource::Kind::Model) return std::make_unique<LookupDrafter>();
  auto runner = plan_drafter(drafts, main);
  check_vocabularies(main, text, *runner, drafts.name);
  load(*runner);
  return std::make_unique<ModelDrafter>(std::move(runner));
}

}  // namespace millrace
