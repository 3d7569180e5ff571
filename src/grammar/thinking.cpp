#include "grammar/thinking.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Finds a short list of tokens in the stream.
class Follow {
 public:
  explicit Follow(const std::vector<int32_t>& tokens) : tokens_(tokens) {
    recent_.reserve(tokens.size() + 1);
    marked_.reserve(tokens.size() + 1);
  }
  // True: the list is complete with this token.
  bool take(int32_t token) {
    recent_.push_back(token);
    if (recent_.size() > tokens_.size()) recent_.erase(recent_.begin());
    return !tokens_.empty() && recent_ == tokens_;
  }
  void mark() { marked_ = recent_; }
  void roll_back() { recent_ = marked_; }

 private:
  std::vector<int32_t> tokens_, recent_, marked_;
};

class ThinkingConstraint : public Constraint {
 public:
  ThinkingConstraint(ThinkingBudget budget, std::unique_ptr<Constraint> answer)
      : budget_(std::move(budget)), answer_(std::move(answer)), close_(budget_.close) {
    if (budget_.begins_inside) begin_thinking();
  }

  bool fill_mask(std::span<uint32_t> words) override {
    if (state_ == State::Start) return fill_start(words);
    if (state_ == State::Forced) {
      only(budget_.forced[forced_], words);
      return true;
    }
    return state_ == State::Answer && answer_ && answer_->fill_mask(words);
  }

  void accept(int32_t token) override {
    switch (state_) {
      case State::Start:
        if (opened_ < budget_.open.size() && token == budget_.open[opened_]) {
          if (++opened_ == budget_.open.size()) begin_thinking();
          return;
        }
        state_ = State::Answer;
        if (!answer_) return;
        for (size_t i = 0; i < opened_; ++i) answer_->accept(budget_.open[i]);  // these tokens belong to the answer
        return answer_->accept(token);
      case State::Thinking:
        ++spent_;
        if (close_.take(token)) {
          state_ = State::Answer;
        } else if (used_up()) {
          state_ = State::Forced;
        }
        return;
      case State::Forced:
        if (++forced_ == budget_.forced.size()) state_ = State::Answer;
        return;
      case State::Answer:
        if (answer_) answer_->accept(token);
        return;
    }
  }

  void mark() override {
    mark_.state = state_;
    mark_.spent = spent_;
    mark_.opened = opened_;
    mark_.forced = forced_;
    close_.mark();
    if (answer_) answer_->mark();
  }

  void roll_back() override {
    state_ = mark_.state;
    spent_ = mark_.spent;
    opened_ = mark_.opened;
    forced_ = mark_.forced;
    close_.roll_back();
    if (answer_) answer_->roll_back();
  }

  bool terminated() const override { return state_ == State::Answer && answer_ && answer_->terminated(); }
  bool failed() const override { return state_ == State::Answer && answer_ && answer_->failed(); }

 private:
  enum class State : uint8_t { Start, Thinking, Forced, Answer };

  // The first token either opens the reasoning or begins the answer.
  bool fill_start(std::span<uint32_t> words) {
    if (!answer_ || !answer_->fill_mask(words)) return false;
    if (opened_ > 0) {
      only(budget_.open[opened_], words);
    } else if (!budget_.open.empty()) {
      set(budget_.open[0], words);
    }
    return true;
  }

  bool used_up() const { return budget_.tokens >= 0 && spent_ >= budget_.tokens && !budget_.forced.empty(); }
  void begin_thinking() { state_ = used_up() ? State::Forced : State::Thinking; }

  static void set(int32_t token, std::span<uint32_t> words) {
    words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  static void only(int32_t token, std::span<uint32_t> words) {
    std::fill(words.begin(), words.end(), 0u);
    set(token, words);
  }

  ThinkingBudget budget_;
  std::unique_ptr<Constraint> answer_;
  Follow close_;
  State state_ = State::Start;
  int32_t spent_ = 0;
  size_t opened_ = 0, forced_ = 0;
  struct Mark {
    State state = State::Start;
    int32_t spent = 0;
    size_t opened = 0, forced = 0;
  };
  Mark mark_;
};

}  // namespace

std::unique_ptr<Constraint> make_thinking_constraint(ThinkingBudget budget, std::unique_ptr<Constraint> answer) {
  return std::make_unique<ThinkingConstraint>(std::move(budget), std::move(answer));
}

std::unique_ptr<Constraint> behind_reasoning(const Tokenizer& tokenizer, bool begins_inside, int32_t tokens,
                                             std::unique_ptr<Constraint> answer) {
  if (tokens < 0 && !answer) return nullptr;
  const auto ids = [&](const char* text) { return tokenizer.encode(text, {.add_special = false}); };
  return make_thinking_constraint({.begins_inside = begins_inside,
                                   .tokens = tokens,
                                   .open = ids("<think>"),
                                   .close = ids("</think>"),
                                   .forced = ids("\n</think>")},
                                  std::move(answer));
}

}  // namespace millrace
