// --cascade and its options for serve: two models behind one name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "server/cascade.h"

namespace millrace {

struct CascadeOptions {
  std::string models;     // SMALL,LARGE; empty: no cascade
  std::string threshold;  // auto, or a number up to 0; empty: auto
  std::string prompts;    // a file for auto; empty: the built-in ones
  std::optional<double> share;
};

void add_cascade_options(CLI::App& verb, CascadeOptions& options);

// Checks the options against each other. The two models, small one first; none: no cascade. Throws Usage.
std::vector<std::string> cascade_models(const CascadeOptions& options);

// The cascade of the two models, of which the small one is opened with `model`. Throws if one of them makes no answers.
// A threshold of `auto` is measured, unless that was done for this model and these prompts before.
Cascade make_cascade(const CascadeOptions& options, ModelOptions model);

}  // namespace millrace
