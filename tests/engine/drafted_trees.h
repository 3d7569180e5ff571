// A test drafter that knows the texts generated without drafts, and is right in a chosen branch of the tree only.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/random.h"
#include "engine/drafter.h"

namespace millrace {

class DraftedTrees : public Drafter {
 public:
  // How a sequence of so many tokens is guessed: the chain whose first token is right (0: the draft, r: branch r;
  // beyond the last: none), and the number of right tokens in it.
  struct Guess {
    int32_t chain = 0, right = 0;
  };
  using Choose = std::function<Guess(std::span<const int32_t> tokens)>;

  DraftedTrees(int32_t vocab, Choose choose) : vocab_(vocab), choose_(std::move(choose)) {}
  void know(std::vector<int32_t> text) { texts_.push_back(std::move(text)); }  // prompt and answer

  bool follows() const override { return true; }

  void draft_all(std::span<DraftAsk> asks) override {
    for (DraftAsk& ask : asks) {
      ask.given = 0;
      const auto* text = find(ask.tokens);
      if (text == nullptr) continue;
      widest = std::max(widest, ask.branch);
      branches += ask.branch > 0 ? 1 : 0;
      const Guess guess = choose_(ask.tokens);
      for (size_t i = 0; i < ask.draft.size() && ask.tokens.size() + i < text->size(); ++i) {
        const int32_t right = (*text)[ask.tokens.size() + i];
        const bool is_right = ask.branch == guess.chain && static_cast<int32_t>(i) < guess.right;
        ask.draft[i] = is_right ? right : wrong(right, ask.branch);
        ask.given = static_cast<int32_t>(i) + 1;
      }
    }
    if (throw_in > 0 && --throw_in == 0) throw std::runtime_error("the device failed");
  }

  // The first tokens of the branches.
  std::span<const int32_t> alternatives(uint64_t sequence, size_t tokens) const override {
    const auto found = asked_.find(sequence);
    return found == asked_.end() || found->second.length != tokens ? std::span<const int32_t>() : found->second.first;
  }

  void follow(std::span<const FollowedRows> sequences) override {
    for (const FollowedRows& s : sequences) {
      const auto* text = find(s.tokens);
      if (!s.drafts || text == nullptr || s.tokens.size() >= text->size()) continue;
      Asked& asked = asked_[s.sequence];
      asked.length = s.tokens.size();
      asked.first.clear();
      const Guess guess = choose_(s.tokens);
      const int32_t right = (*text)[s.tokens.size()];
      for (int32_t branch = 1; branch <= s.alternatives; ++branch)
        asked.first.push_back(branch == guess.chain && guess.right > 0 ? right : wrong(right, branch));
      rows_followed += s.rows;
      followed_from = s.row;
    }
  }
  void forget(uint64_t sequence) override { asked_.erase(sequence); }

  int32_t widest = 0;  // branches of a sequence in one step
  int64_t branches = 0, rows_followed = 0;
  int32_t followed_from = 0;  // the first row of the step that was followed last
  int throw_in = 0;           // steps; 0: never

 private:
  int32_t wrong(int32_t right, int32_t branch) const { return (right + 1 + branch) % vocab_; }
  const std::vector<int32_t>* find(std::span<const int32_t> tokens) const {
    for (const auto& text : texts_) {
      if (text.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin())) return &text;
    }
    return nullptr;
  }

  struct Asked {
    size_t length = 0;
    std::vector<int32_t> first;
  };
  int32_t vocab_;
  Choose choose_;
  std::vector<std::vector<int32_t>> texts_;
  std::map<uint64_t, Asked> asked_;
};

}  // namespace millrace
