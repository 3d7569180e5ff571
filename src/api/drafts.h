// The `draft` option of the library: the source of draft tokens for speculative decoding.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/text_model.h"

namespace millrace {

// `draft` is "lookup", "none" or the name of a model.

// Reserves rows with logits for drafts.
void add_draft_rows(const std::string& draft, LoadOptions& load);
// Loads the draft model if one is named, until `stop` returns true; null: no drafts. `main` is loaded.
std::unique_ptr<Drafter> drafter_named(const std::string& draft, const Runner& main, const TextModel& text,
                                       const std::function<bool()>& stop);

}  // namespace millrace
