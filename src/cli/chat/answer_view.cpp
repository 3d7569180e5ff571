#include "cli/chat/answer_view.h"

#include <fmt/core.h>

#include <utility>

#include "base/ascii.h"
#include "cli/flush_stdout.h"

namespace millrace {

void AnswerView::take(const AnswerPiece& piece) {
  if (piece.kind == AnswerPiece::Kind::Reasoning) {
    if (options_.terminal) show_reasoning(piece.text);
  } else {
    end_reasoning();
    fmt::print("{}", options_.color ? markdown_.push(piece.text) : piece.text);
  }
  flush_stdout();
}

void AnswerView::show_reasoning(const std::string& text) {
  const bool first = !std::exchange(reasoning_, true);
  if (!options_.fold) {
    fmt::print("{}{}", !first ? "" : options_.color ? "\033[2m" : "[thinking] ", text);
    return;
  }
  const size_t before = words_;
  for (const char c : text) {
    const bool in_word = !is_ascii_space(c);
    words_ += in_word && !in_word_ ? 1 : 0;
    in_word_ = in_word;
  }
  if (options_.color && words_ != before) fmt::print("\r\033[2mthinking, {} words\033[0m", words_);
}

void AnswerView::end_reasoning() {
  if (!std::exchange(reasoning_, false)) return;
  if (!options_.fold) {
    fmt::print("{}\n\n", options_.color ? "\033[0m" : "");
  } else if (options_.color) {
    fmt::print("\r\033[K\033[2mthought, {} words (/think shows them)\033[0m\n", words_);
  } else {
    fmt::print("[thought, {} words: /think shows them]\n", words_);
  }
}

void AnswerView::finish(bool interrupted) {
  end_reasoning();
  fmt::print("{}{}\n", options_.color ? markdown_.finish() : "", interrupted ? " [stopped]" : "");
  flush_stdout();
}

}  // namespace millrace
