// Splitting answers according to the request.
#include "server/answer_sink.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

class Recorder final : public AnswerSink {
 public:
  explicit Recorder(const ChatPrompt& prompt) : AnswerSink(nullptr, 1, prompt) {}
  void on_end() override {}

  std::vector<std::string> calls;
  std::string content, arguments;

 private:
  void on_logprobs(int, const std::vector<TokenLogprobs>&) override {}
  void on_piece(int, const AnswerPiece& piece) override {
    if (piece.kind == AnswerPiece::Kind::Call) calls.push_back(piece.text);
    if (piece.kind == AnswerPiece::Kind::Arguments) arguments += piece.text;
    if (piece.kind == AnswerPiece::Kind::Content) content += piece.text;
  }
  void on_finish(int, FinishReason, bool) override {}
};

constexpr const char* kTwoCalls =
    "Well.<tool_call>{\"name\": \"up\", \"arguments\": {\"a\": 1}}</tool_call>"
    "<tool_call>{\"name\": \"down\", \"arguments\": {\"b\": 2}}</tool_call>";

std::unique_ptr<Recorder> answer_with(bool one_call) {
  ChatPrompt prompt;
  prompt.parser.tools = true;
  prompt.parser.names = {"up", "down"};
  prompt.one_call = one_call;
  auto recorder = std::make_unique<Recorder>(prompt);
  recorder->on_delta({.text = kTwoCalls, .tokens = 1, .finish = FinishReason::Stop});
  return recorder;
}

TEST(AnswerSink, CallsInParallelOrOneAlone) {
  const auto both = answer_with(false);
  EXPECT_EQ(both->calls, (std::vector<std::string>{"up", "down"}));
  EXPECT_EQ(both->arguments, "{\"a\": 1}{\"b\": 2}");
  const auto one = answer_with(true);
  EXPECT_EQ(one->calls, std::vector<std::string>{"up"});
  EXPECT_EQ(one->arguments, "{\"a\": 1}");
  EXPECT_EQ(one->content, both->content);
}

}  // namespace
}  // namespace millrace
