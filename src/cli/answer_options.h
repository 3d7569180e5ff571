// Options that shape a prompt and its answer: system message, chat template, reasoning, and the form of the answer.
#pragma once

#include <optional>
#include <string>

#include "cli/verb.h"
#include "engine/text_model.h"
#include "grammar/grammar_spec.h"

namespace millrace {

struct AnswerOptions {
  std::string system;
  std::string template_file;
  std::string thinking;  // "on", "off", a number of tokens, or empty: as the template has it
  std::string schema, grammar;
};

void add_answer_options(CLI::App& verb, AnswerOptions& options);

// Tokens of reasoning: -1 for "on", 0 for "off"; throws Usage.
int32_t thinking_budget(const std::string& given);

// The form of --schema or --grammar, read and checked; nullopt: free text.
std::optional<GrammarSpec> answer_form(const AnswerOptions& options);

// The text side of the model, with the template of --template if one is given.
TextModel load_text_model(const WeightSource& source, const AnswerOptions& options);

}  // namespace millrace
