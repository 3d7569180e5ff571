#include "grammar/either.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

class EitherConstraint : public Constraint {
 public:
  EitherConstraint(std::vector<Alternative> alternatives, int64_t vocab) : mask_(mask_words(vocab)) {
    for (Alternative& one : alternatives) {
      ways_.push_back({std::move(one.form), one.marker});
      states_.push_back({.alive = true, .at_marker = one.marker >= 0});
    }
    marked_ = states_;
  }

  bool fill_mask(std::span<uint32_t> words) override {
    if (const size_t only = last_alive(); only < ways_.size()) return ways_[only].form->fill_mask(words);
    std::fill(words.begin(), words.end(), 0);
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (!states_[i].alive) continue;
      const std::span<uint32_t> mask(mask_.data(), words.size());
      if (!mask_of(i, mask)) return false;
      for (size_t w = 0; w < words.size(); ++w) words[w] |= mask[w];
    }
    return true;
  }

  void accept(int32_t token) override {
    if (const size_t only = last_alive(); only < ways_.size()) return ways_[only].form->accept(token);
    for (size_t i = 0; i < ways_.size(); ++i) {
      State& state = states_[i];
      if (!state.alive) continue;
      const bool allowed = !mask_of(i, mask_) || (mask_[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0;
      state.alive = allowed;
      if (!allowed) continue;
      if (!std::exchange(state.at_marker, false)) ways_[i].form->accept(token);
    }
  }

  void mark() override {
    marked_ = states_;
    for (Way& way : ways_) way.form->mark();
  }
  void roll_back() override {
    states_ = marked_;
    for (Way& way : ways_) way.form->roll_back();
  }

  bool terminated() const override {
    return all_alive([](const Way& way, const State& state) { return !state.at_marker && way.form->terminated(); });
  }
  bool failed() const override {
    return all_alive([](const Way& way, const State& state) { return !state.at_marker && way.form->failed(); });
  }

 private:
  struct Way {
    std::unique_ptr<Constraint> form;
    int32_t marker;
  };
  struct State {
    bool alive, at_marker;
  };

  // The only alternative that is left, if it is past its marker; else the number of alternatives.
  size_t last_alive() const {
    const auto alive = [](const State& state) { return state.alive; };
    if (std::count_if(states_.begin(), states_.end(), alive) != 1) return ways_.size();
    const auto found = std::find_if(states_.begin(), states_.end(), alive);
    return found->at_marker ? ways_.size() : static_cast<size_t>(found - states_.begin());
  }

  bool mask_of(size_t i, std::span<uint32_t> mask) {
    if (!states_[i].at_marker) return ways_[i].form->fill_mask(mask);
    std::fill(mask.begin(), mask.end(), 0);
    mask[static_cast<size_t>(ways_[i].marker) / 32] |= 1u << (ways_[i].marker % 32);
    return true;
  }

  template <class Test>
  bool all_alive(Test test) const {
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (states_[i].alive && !test(ways_[i], states_[i])) return false;
    }
    return true;
  }

  std::vector<Way> ways_;
  std::vector<State> states_, marked_;
  std::vector<uint32_t> mask_;
};

}  // namespace

std::unique_ptr<Constraint> make_either_constraint(std::vector<Alternative> alternatives, int64_t vocab) {
  return std::make_unique<EitherConstraint>(std::move(alternatives), vocab);
}

}  // namespace millrace
