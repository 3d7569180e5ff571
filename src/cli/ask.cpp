#include "cli/ask.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "grammar/thinking.h"
#include "server/grammar_vocabulary.h"
#include "server/harmony_prompt.h"

namespace millrace {

Asker::Asker(Engine& engine, const TextModel& text, int32_t vocab, const AnswerOptions& options)
    : engine_(engine), text_(text), vocab_(vocab), form_(answer_form(options)) {
  if (!options.thinking.empty()) set_thinking(options.thinking);
  if (!form_) return;
  if (text.tokenizer == nullptr) fail(ErrorKind::Usage, "--schema and --grammar need a model with a tokenizer");
  grammars_ = std::make_unique<GrammarCompiler>(grammar_vocabulary(text, vocab));
  grammars_->compile(*form_);
}

void Asker::set_thinking(const std::string& given) {
  const int32_t budget = thinking_budget(given);
  if (!text_.chat) fail(ErrorKind::Usage, "--thinking: this model has no chat template");
  if (budget != 0 && !answer_format(text_.chat->sources.choose(/*with_tools=*/false)).reasons) {
    fail(ErrorKind::Usage, "--thinking {}: this model does not reason before it answers", given);
  }
  thinking_ = budget;
}

Prompt Asker::chat(const nlohmann::ordered_json& messages) const {
  if (!text_.chat) fail(ErrorKind::Usage, "this model has no chat template");
  nlohmann::ordered_json context{{"messages", messages}, {"add_generation_prompt", true}};
  if (thinking_) context["enable_thinking"] = *thinking_ != 0;
  RenderedChat rendered = render_chat(text_, std::move(context));
  const AnswerFormat format = answer_format(text_.chat->sources.choose(/*with_tools=*/false));
  if (format.harmony() && thinking_ == 0) rendered.text += "<|channel|>final<|message|>";
  log().debug("prompt: {}", rendered.text);
  Prompt prompt;
  prompt.tokens = encode_chat(*text_.tokenizer, rendered);
  prompt.parser.format = format;
  if (format.harmony()) {
    prompt.parser.opened = harmony_opened(rendered.text);
  } else {
    prompt.parser.in_reasoning = format.reasons && prompt_opens_reasoning(rendered.text);
  }
  return prompt;
}

// The form applies behind the reasoning, which ends when its budget is used up. Templates without enable_thinking open
// the reasoning anyway: a budget of no tokens then closes it.
std::shared_ptr<Constraint> Asker::constraint(const Prompt& prompt) {
  std::unique_ptr<Constraint> form = form_ ? grammars_->compile(*form_) : nullptr;
  const int32_t budget = thinking_.value_or(-1);
  if (prompt.parser.format.harmony()) {
    if (form == nullptr && budget <= 0) return nullptr;  // without reasoning the prompt opens the answer
    return harmony_form(text_, prompt.parser.opened, budget, std::move(form));
  }
  if (!prompt.parser.in_reasoning && !prompt.parser.format.reasons) return form;
  return behind_reasoning(*text_.tokenizer, prompt.parser.in_reasoning, budget, std::move(form));
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
