// Where draft tokens come from: a look-up, a smaller model, or heads that read the model's hidden states. Chosen by
// name.
#pragma once

#include <memory>
#include <string>

#include "base/function_ref.h"
#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/text_model.h"

namespace millrace {

struct DraftSource {
  enum class Kind : uint8_t { None, Lookup, Model, Heads };
  Kind kind = Kind::None;
  bool by_default = false;                     // heads are used if they fit and pay, else look-up
  std::string name;                            // as given
  std::shared_ptr<const WeightSource> source;  // of a model or of heads
};

// `name`: "auto", "lookup", "mtp", "none", or what `open` opens. Reserves rows with logits and hidden states in the
// options of the main model.
DraftSource open_drafts(const std::string& name, const std::shared_ptr<const WeightSource>& main,
                        FunctionRef<std::shared_ptr<const WeightSource>(const std::string&)> open, LoadOptions& load);

// The draft model or the heads beside `main`, planned but not loaded; null: the drafts need no passes. `main` may be
// planned only, too.
std::unique_ptr<Runner> plan_drafter(const DraftSource& drafts, const Runner& main);

// Loads the draft model or the heads with `load`; null: no drafts. `main` is loaded with the options of open_drafts()
// and outlives the drafter. `text` may have no tokenizer.
std::unique_ptr<Drafter> make_drafter(const DraftSource& drafts, Runner& main, const TextModel& text,
                                      FunctionRef<void(Runner&)> load);

}  // namespace millrace
