#include "cli/draft_options.h"

#include <algorithm>

#include "base/error.h"
#include "engine/lookup_drafter.h"
#include "engine/model_drafter.h"

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

}  // namespace

void add_draft_options(CLI::App& verb, DraftOptions& o) {
  verb.add_option("--draft", o.draft,
                  "guess tokens ahead, so that a step can give several of them; the text stays the same. lookup: where "
                  "prompt or answer repeat themselves, as far as it saves time; none: one token a step; or a smaller "
                  "MODEL of the same vocabulary that guesses")
      ->capture_default_str();
}

void add_draft_rows(LoadOptions& load, const DraftOptions& o) {
  if (o.draft == "none") return;
  const int64_t each = o.draft == "lookup" ? LookupDrafter().most_tokens() : ModelDrafter::kMostTokens;
  load.logit_rows = std::max(load.logit_rows, load.sequences + std::min(kMostDraftRows, load.sequences * each));
}

std::unique_ptr<Drafter> make_drafter(const DraftOptions& o, const ModelOptions& model, const Runner& main,
                                      const TextModel& text) {
  if (o.draft == "none") return nullptr;
  if (o.draft == "lookup") return std::make_unique<LookupDrafter>();
  ModelOptions draft = model;
  draft.model = o.draft;
  auto runner = ModelDrafter::plan(main, open_model(draft));
  check_vocabularies(main, text, *runner, o.draft);
  load_weights(*runner);
  return std::make_unique<ModelDrafter>(std::move(runner));
}

}  // namespace millrace
