// Shows an answer while it arrives. On a terminal reasoning is dim, or folded to one line, and content is Markdown. A
// pipe gets the content only, unchanged.
#pragma once

#include "cli/chat/markdown.h"
#include "text/answer/answer_parser.h"

namespace millrace {

struct ViewOptions {
  bool terminal = false, color = false;
  bool fold = false;  // reasoning as one line that counts its words
};

class AnswerView {
 public:
  explicit AnswerView(const ViewOptions& options) : options_(options) {}

  void take(const AnswerPiece& piece);
  void finish(bool interrupted);

 private:
  void show_reasoning(const std::string& text);
  void end_reasoning();

  ViewOptions options_;
  Markdown markdown_;
  bool reasoning_ = false;
  size_t words_ = 0;  // of the reasoning
  bool in_word_ = false;
};

}  // namespace millrace
