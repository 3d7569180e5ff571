// --draft: the source of draft tokens for speculative decoding.
#pragma once

#include <memory>
#include <string>

#include "cli/model_options.h"
#include "engine/draft_source.h"

namespace millrace {

struct DraftOptions {
  std::string draft = "auto";
  std::string speculate;  // the names that other engines have for the same; empty: as `draft` says
};

void add_draft_options(CLI::App& verb, DraftOptions& options);

// Opens the draft model or finds the heads of the main model, and reserves rows with logits and hidden states in the
// options of the main model.
DraftSource open_drafts(const DraftOptions& options, const ModelOptions& model,
                        const std::shared_ptr<const WeightSource>& main, LoadOptions& load);

// Shows the progress of loading.
std::unique_ptr<Drafter> make_drafter(const DraftSource& drafts, Runner& main, const TextModel& text);

}  // namespace millrace
