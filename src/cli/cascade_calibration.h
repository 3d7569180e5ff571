// What a cascade's small model makes of typical prompts: the data behind --threshold auto.
#pragma once

#include <string>
#include <vector>

#include "cli/model_options.h"

namespace millrace {

// For each line of the file (empty: the built-in prompts) the mean log-probability of the tokens of the model's greedy
// answer; minus infinity for an answer without tokens. Results are kept in the cache, so that a restart is quick.
std::vector<double> answer_means(const ModelOptions& model, const std::string& file);

}  // namespace millrace
