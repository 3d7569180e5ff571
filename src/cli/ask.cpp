#include "cli/ask.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "grammar/thinking.h"
#include "server/grammar_vocabulary.h"

namespace millrace {

Asker::Asker(Engine& engine, const TextModel& text, int32_t vocab, const AnswerOptions& options)
    : engine_(engine), text_(text), vocab_(vocab), form_(answer_form(options)) {
  if (!options.thinking.empty()) set_thinking(options.thinking);
  if (!form_) return;
  if (text.tokenizer == nullptr) fail(ErrorKind::Usage, "--schema and --grammar need a model with a tokenizer");
  grammars_ = std::make_unique<GrammarCompiler>(grammar_vocabulary(text, vocab));
  grammars_->compile(*form_);
}

void Asker::set_thinking(const std::string& on_or_off) {
  if (!text_.chat) fail(ErrorKind::Usage, "--thinking: this model has no chat template");
  if (on_or_off == "on" && !answer_format(text_.chat->sources.choose(/*with_tools=*/false)).reasons) {
    fail(ErrorKind::Usage, "--thinking on: this model does not reason before it answers");
  }
  thinking_ = on_or_off;
}

Prompt Asker::chat(const nlohmann::ordered_json& messages) const {
  if (!text_.chat) fail(ErrorKind::Usage, "this model has no chat template");
  nlohmann::ordered_json context{{"messages", messages}, {"add_generation_prompt", true}};
  if (!thinking_.empty()) context["enable_thinking"] = thinking_ == "on";
  const RenderedChat rendered = render_chat(text_, std::move(context));
  log().debug("prompt: {}", rendered.text);
  Prompt prompt;
  prompt.tokens = encode_chat(*text_.tokenizer, rendered);
  prompt.parser.format = answer_format(text_.chat->sources.choose(/*with_tools=*/false));
  prompt.parser.in_reasoning = prompt.parser.format.reasons && prompt_opens_reasoning(rendered.text);
  return prompt;
}

// The form applies behind the reasoning. Templates without enable_thinking open the reasoning anyway: a budget of no
// tokens then closes it.
std::shared_ptr<Constraint> Asker::constraint(const Prompt& prompt) {
  std::unique_ptr<Constraint> form = form_ ? grammars_->compile(*form_) : nullptr;
  if (!prompt.parser.in_reasoning && !prompt.parser.format.reasons) return form;
  return behind_reasoning(*text_.tokenizer, prompt.parser.in_reasoning, thinking_ == "off" ? 0 : -1, std::move(form));
}

Answer Asker::ask(const Prompt& prompt, const SamplingOptions& options, const SamplingParams& sampling,
                  FunctionRef<void(const AnswerPiece&)> on_piece) {
  CompletionOptions o;
  o.prompt = prompt.tokens;
  o.sampling = sampling;
  o.max_tokens = options.max_tokens;
  o.stop = options.stop;
  o.visible = answer_markers(prompt.parser.format, /*tools=*/false);
  o.constraint = constraint(prompt);
  if (!options.ignore_eos) o.end_tokens = text_.end_tokens;
  if (options.ignore_eos && form_) fail(ErrorKind::Usage, "--ignore-eos: the form of the answer decides its end");

  Answer answer;
  AnswerParser parser(prompt.parser);
  const auto take = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      (piece.kind == AnswerPiece::Kind::Reasoning ? answer.reasoning : answer.content) += piece.text;
      on_piece(piece);
    }
  };
  answer.completion =
      complete(engine_, text_.tokenizer.get(), o, [&](std::string_view text) { take(parser.push(text)); });
  take(parser.finish());
  return answer;
}

}  // namespace millrace
