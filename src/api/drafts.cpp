#include "api/drafts.h"

#include <algorithm>

#include "base/error.h"
#include "engine/lookup_drafter.h"
#include "engine/model_drafter.h"
#include "store/store.h"

namespace millrace {
namespace {

constexpr int64_t kMostDraftRows = 64;  // as in `millrace serve`

}  // namespace

void add_draft_rows(const std::string& draft, LoadOptions& load) {
  if (draft == "none") return;
  const int64_t each = draft == "lookup" ? LookupDrafter().most_tokens() : ModelDrafter::kMostTokens;
  load.logit_rows = std::max(load.logit_rows, load.sequences + std::min(kMostDraftRows, load.sequences * each));
}

std::unique_ptr<Drafter> drafter_named(const std::string& draft, const Runner& main, const TextModel& text,
                                       const std::function<bool()>& stop) {
  if (draft == "none") return nullptr;
  if (draft == "lookup") return std::make_unique<LookupDrafter>();
  auto runner = ModelDrafter::plan(main, open_weights(resolve_model(draft, stop).string()));
  ModelDrafter::check_vocabulary(*text.tokenizer, *load_tokenizer(runner->source()), draft);
  runner->load([&](int64_t, int64_t) {
    if (stop()) fail(ErrorKind::Cancelled, "loading was stopped");
  });
  return std::make_unique<ModelDrafter>(std::move(runner));
}

}  // namespace millrace
