#include "cli/answer_printer.h"

#include <fmt/core.h>

#include "cli/flush_stdout.h"

namespace millrace {

AnswerPrinter::AnswerPrinter(const TextModel& text, std::string_view prompt, bool silent) : silent_(silent) {
  if (prompt.empty() || !text.chat) return;
  const AnswerFormat format = answer_format(text.chat->sources.choose(false));
  if (!format.harmony()) return;
  parser_.emplace(AnswerParserOptions{.format = format, .opened = std::string(harmony_opened(prompt)), .names = {}});
  visible_ = answer_markers(format, false);
}

void AnswerPrinter::push(std::string_view text) {
  if (!parser_) return print_content(text);
  print(parser_->push(text));
}

void AnswerPrinter::finish() {
  if (parser_) print(parser_->finish());
}

void AnswerPrinter::print(const std::vector<AnswerPiece>& pieces) {
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == AnswerPiece::Kind::Content) {
      if (!silent_ && content_.empty() && !reasoning_.empty()) fmt::print(stderr, "\n\n");
      print_content(piece.text);
    } else if (piece.kind == AnswerPiece::Kind::Reasoning) {
      reasoning_ += piece.text;
      if (!silent_) fmt::print(stderr, "{}", piece.text);
    }
  }
}

void AnswerPrinter::print_content(std::string_view text) {
  content_ += text;
  if (silent_) return;
  fmt::print("{}", text);
  flush_stdout();
}

}  // namespace millrace
