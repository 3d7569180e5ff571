// --draft: the source of draft tokens for speculative decoding.
#pragma once

#include <memory>
#include <string>

#include "cli/model_options.h"
#include "engine/drafter.h"
#include "engine/text_model.h"

namespace millrace {

struct DraftOptions {
  std::string draft = "auto";
};

void add_draft_options(CLI::App& verb, DraftOptions& options);

struct DraftSource {
  enum class Kind : uint8_t { None, Lookup, Model, Heads };
  Kind kind = Kind::None;
  bool by_default = false;                     // heads are used if they fit and pay, else look-up
  std::string name;                            // as given
  std::shared_ptr<const WeightSource> source;  // of a model or of heads
};
// Opens the draft model or finds the heads of the main model, and reserves rows with logits and hidden states in the
// options of the main model.
DraftSource open_drafts(const DraftOptions& options, const ModelOptions& model,
                        const std::shared_ptr<const WeightSource>& main, LoadOptions& load);

// Loads the draft model or the heads; null: no drafts. `main` is loaded with the options of open_drafts() and outlives
// the drafter. `text` may have no tokenizer.
std::unique_ptr<Drafter> make_drafter(const DraftSource& drafts, Runner& main, const TextModel& text);

}  // namespace millrace
