// Prints a streamed chat answer. Answers in the harmony format (gpt-oss) are taken apart: the reasoning goes to stderr,
// the answer to stdout. Other answers are printed as they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_model.h"
#include "text/answer/answer_parser.h"

namespace millrace {

class AnswerPrinter {
 public:
  // `prompt`: the rendered prompt; empty: not made by the chat template.
  AnswerPrinter(const TextModel& text, std::string_view prompt, bool silent = false);

  const std::vector<std::string>& visible() const { return visible_; }  // special tokens that the text must include
  void push(std::string_view text);
  void finish();

  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }

 private:
  void print(const std::vector<AnswerPiece>& pieces);
  void print_content(std::string_view text);

  const bool silent_;
  std::optional<AnswerParser> parser_;  // none: the text is the answer
  std::vector<std::string> visible_;
  std::string content_, reasoning_;
};

}  // namespace millrace
