#include "server/answer_sink.h"

namespace millrace {

AnswerSink::AnswerSink(std::shared_ptr<Call> call, int choices, const ChatPrompt& prompt)
    : call_(std::move(call)),
      one_call_(prompt.one_call),
      forced_call_(prompt.forced_call),
      held_is_call_(prompt.held_is_call) {
  for (int i = 0; i < choices; ++i) parsers_.emplace_back(prompt.parser);
}

void AnswerSink::on_delta(const Delta& delta) {
  AnswerParser& parser = parsers_[static_cast<size_t>(delta.choice)];
  if (!delta.logprobs.empty()) on_logprobs(delta.choice, delta.logprobs);
  const auto say = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      if (one_call_ && piece.call > 0) continue;                               // parallel_tool_calls is false
      if (forced_call_ && piece.kind == AnswerPiece::Kind::Content) continue;  // a call that max_tokens cut
      on_piece(delta.choice, piece);
    }
  };
  const std::vector<AnswerPiece> pieces = parser.push(delta.text);
  say(pieces);
  if (parser.in_reasoning()) call_->usage.reasoning_tokens += delta.tokens;
  if (delta.finish == FinishReason::None) return pieces.empty() ? on_silence(delta.choice) : void();
  std::vector<AnswerPiece> held = parser.finish();
  if (held_is_call_ && delta.finish == FinishReason::Length) {
    std::erase_if(held, [](const AnswerPiece& piece) { return piece.kind == AnswerPiece::Kind::Content; });
  }
  say(held);
  stopped_by_ = delta.stop;
  on_finish(delta.choice, delta.finish, parser.calls() > 0);
}

}  // namespace millrace
