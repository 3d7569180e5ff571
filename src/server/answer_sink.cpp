#include "server/answer_sink.h"

namespace millrace {

AnswerSink::AnswerSink(std::shared_ptr<Call> call, int choices, const AnswerParserOptions& parser)
    : call_(std::move(call)), reasoning_(static_cast<size_t>(choices), parser.in_reasoning) {
  for (int i = 0; i < choices; ++i) parsers_.emplace_back(parser);
}

void AnswerSink::on_delta(const Delta& delta) {
  const auto index = static_cast<size_t>(delta.choice);
  AnswerParser& parser = parsers_[index];
  if (!delta.logprobs.empty()) on_logprobs(delta.choice, delta.logprobs);
  const auto say = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      reasoning_[index] = piece.kind == AnswerPiece::Kind::Reasoning;
      on_piece(delta.choice, piece);
    }
  };
  say(parser.push(delta.text));
  if (reasoning_[index]) call_->usage.reasoning_tokens += delta.tokens;
  if (delta.finish == FinishReason::None) return;
  say(parser.finish());
  on_finish(delta.choice, delta.finish, parser.calls() > 0);
}

}  // namespace millrace
