// Asks a loaded model: messages or text become a prompt, and the answer arrives as reasoning and content.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/answer_options.h"
#include "cli/sampling_options.h"
#include "engine/completion.h"
#include "engine/text_model.h"
#include "grammar/grammar_compiler.h"
#include "text/answer/answer_parser.h"

namespace millrace {

struct Prompt {
  std::vector<int32_t> tokens;
  AnswerParserOptions parser;  // separates reasoning from content
};

struct Answer {
  std::string content, reasoning;
  Completion completion;
};

class Asker {
 public:
  // Compiles the form of the answer; throws Usage if it cannot be enforced, or for --thinking if the model does not
  // reason.
  Asker(Engine& engine, const TextModel& text, int32_t vocab, const AnswerOptions& options);

  // Both throw Usage if the model has no chat template.
  Prompt chat(const nlohmann::ordered_json& messages) const;
  void set_thinking(const std::string& given);
  int32_t vocab() const { return vocab_; }

  Answer ask(const Prompt& prompt, const SamplingOptions& options, const SamplingParams& sampling,
             FunctionRef<void(const AnswerPiece&)> on_piece);

 private:
  std::shared_ptr<Constraint> constraint(const Prompt& prompt);

  Engine& engine_;
  const TextModel& text_;
  int32_t vocab_;
  std::optional<int32_t> thinking_;  // tokens of reasoning, -1: no limit; nullopt: as the template has it
  std::optional<GrammarSpec> form_;
  std::unique_ptr<GrammarCompiler> grammars_;  // only if the answer has a form
};

}  // namespace millrace
