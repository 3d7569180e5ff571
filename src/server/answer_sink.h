// Splits streamed chat answers into reasoning, content and tool calls. Subclasses write them in an endpoint's format.
#pragma once

#include <memory>
#include <vector>

#include "server/chat_prompt.h"
#include "server/generation.h"
#include "text/answer/answer_parser.h"

namespace millrace {

class AnswerSink : public GenerationSink {
 public:
  AnswerSink(std::shared_ptr<Call> call, int choices, const ChatPrompt& prompt);

  void on_delta(const Delta& delta) final;
  std::optional<bool> waits_for_tool(int choice) const final {
    return parsers_[static_cast<size_t>(choice)].calls() > 0;
  }

 protected:
  virtual void on_logprobs(int choice,
                           const std::vector<TokenLogprobs>& logprobs) = 0;  // belong to the pieces that follow
  virtual void on_piece(int choice, const AnswerPiece& piece) = 0;
  virtual void on_silence(int) {}  // a token without text: a special one, or part of a character
  virtual void on_finish(int choice, FinishReason finish, bool called_tools) = 0;

  const std::string& stopped_by() const { return stopped_by_; }  // in on_finish: the stop string; empty: none
  bool in_reasoning(int choice) const { return parsers_[static_cast<size_t>(choice)].in_reasoning(); }

  std::shared_ptr<Call> call_;

 private:
  std::vector<AnswerParser> parsers_;
  std::string stopped_by_;
  bool one_call_, forced_call_, held_is_call_;
};

}  // namespace millrace
