// Collects pieces of an answer and joins adjacent pieces of one kind.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/answer/answer_parser.h"

namespace millrace {

class Pieces {
 public:
  void add(AnswerPiece::Kind kind, std::string_view text, int call = -1) {
    if (text.empty() && kind != AnswerPiece::Kind::Call) return;
    const bool joins = !list_.empty() && list_.back().kind == kind && list_.back().call == call;
    if (!joins) list_.push_back({kind, call, {}});
    list_.back().text += text;
  }
  std::vector<AnswerPiece> take() { return std::exchange(list_, {}); }

 private:
  std::vector<AnswerPiece> list_;
};

}  // namespace millrace
