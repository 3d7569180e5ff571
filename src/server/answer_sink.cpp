#include "server/answer_sink.h"

namespace millrace {

AnswerSink::AnswerSink(std::shared_ptr<Call> call, int choices, const ChatPrompt& prompt)
    : call_(std::move(call)),
      one_call_(prompt.one_call),
      reasoning_(static_cast<size_t>(choices), prompt.parser.in_reasoning) {
  for (int i = 0; i < choices; ++i) parsers_.emplace_back(prompt.parser);
}

void AnswerSink::on_delta(const Delta& delta) {
  const auto index = static_cast<size_t>(delta.choice);
  AnswerParser& parser = parsers_[index];
  if (!delta.logprobs.empty()) on_logprobs(delta.choice, delta.logprobs);
  const auto say = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      if (one_call_ && piece.call > 0) continue;  // what the model was not asked for
      reasoning_[index] = piece.kind == AnswerPiece::Kind::Reasoning;
      on_piece(delta.choice, piece);
    }
  };
  const std::vector<AnswerPiece> pieces = parser.push(delta.text);
  say(pieces);
  if (reasoning_[index]) call_->usage.reasoning_tokens += delta.tokens;
  if (delta.finish == FinishReason::None) return pieces.empty() ? on_silence(delta.choice) : void();
  say(parser.finish());
  on_finish(delta.choice, delta.finish, parser.calls() > 0);
}

}  // namespace millrace
