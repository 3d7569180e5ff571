// --draft: the source of draft tokens for speculative decoding.
#pragma once

#include <memory>
#include <string>

#include "cli/model_options.h"
#include "engine/drafter.h"
#include "engine/text_model.h"

namespace millrace {

struct DraftOptions {
  std::string draft = "lookup";
};

void add_draft_options(CLI::App& verb, DraftOptions& options);

// Reserves rows with logits for drafts.
void add_draft_rows(LoadOptions& load, const DraftOptions& options);

// Loads the draft model if one is named; null: no drafts. `main` is loaded, `text` may have no tokenizer.
std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const ModelOptions& model, const Runner& main,
                                      const TextModel& text);

}  // namespace millrace
