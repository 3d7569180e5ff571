// Splits <think>...</think> off the front of an answer and drops the white space around the tags.
#pragma once

#include <string>

#include "base/tag_scan.h"
#include "text/answer/call_stage.h"

namespace millrace {

class ReasoningStage {
 public:
  // `may_reason`: a <think> at the beginning opens reasoning. `inside`: the answer begins inside of the reasoning.
  ReasoningStage(bool may_reason, bool inside)
      : state_(inside       ? State::Inside
               : may_reason ? State::Start
                            : State::Answer) {}

  void take(char byte, CallStage& answer, Pieces& out) {
    switch (state_) {
      case State::Start:
        return take_start(byte, answer, out);
      case State::Inside: {
        const TagScan::Step step = close_.take(byte);
        reasoning(close_.released(), out);
        if (step == TagScan::Step::Outside) reasoning({&byte, 1}, out);
        if (step == TagScan::Step::Found) state_ = State::After;
        return;
      }
      case State::After:
        if (is_ascii_space(byte)) return;
        state_ = State::Answer;
        return answer.take(byte, out);
      case State::Answer:
        return answer.take(byte, out);
    }
  }

  bool in_reasoning() const { return state_ == State::Inside || state_ == State::After; }

  void finish(CallStage& answer, Pieces& out) {
    if (state_ == State::Start) forward(space_ + std::string(open_.drop()), answer, out);
    if (state_ == State::Inside) reasoning(close_.drop(), out);
  }

 private:
  enum class State : uint8_t { Start, Inside, After, Answer };

  void take_start(char byte, CallStage& answer, Pieces& out) {
    const bool fresh = open_.empty();
    if (fresh && is_ascii_space(byte)) {
      space_ += byte;
      return;
    }
    const TagScan::Step step = open_.take(byte);
    if (step == TagScan::Step::Partial && open_.released().empty()) return;
    state_ = step == TagScan::Step::Found ? State::Inside : State::Answer;
    std::string plain = step == TagScan::Step::Found ? "" : space_ + std::string(open_.released());
    if (step == TagScan::Step::Partial) plain += open_.drop();
    if (step == TagScan::Step::Outside) plain += byte;
    space_.clear();
    forward(plain, answer, out);
  }

  static void forward(const std::string& text, CallStage& answer, Pieces& out) {
    for (const char byte : text) answer.take(byte, out);
  }

  void reasoning(std::string_view text, Pieces& out) {
    for (const char byte : text) {
      const bool space = is_ascii_space(byte);
      if (space && !begun_) continue;
      begun_ = true;
      space_ += byte;
      if (!space) {
        out.add(AnswerPiece::Kind::Reasoning, space_);
        space_.clear();
      }
    }
  }

  State state_;
  TagScan open_{"<think>"}, close_{"</think>"};
  std::string space_;  // held-back white space: a tag may follow
  bool begun_ = false;
};

}  // namespace millrace
