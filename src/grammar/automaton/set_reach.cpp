#include "grammar/automaton/set_reach.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kMostBetween = 400;  // states; with more, tokens are walked one by one
constexpr size_t kMostPlaces = 64;    // states inside of characters

template <class T>
bool add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) != list.end()) return false;
  list.push_back(value);
  return true;
}

std::vector<uint8_t> representatives(const TokenSet& set, const GrammarProgram& grammar) {
  std::vector<uint8_t> bytes;
  const auto same = [&](uint8_t a, uint8_t b) {
    return grammar.kind_of_byte[a] == grammar.kind_of_byte[b] &&
           std::all_of(set.character().begin(), set.character().end(),
                       [&](const TokenSet::Row& row) { return row[a] == row[b]; });
  };
  for (int byte = 0; byte < 256; ++byte) {
    const auto one = static_cast<uint8_t>(byte);
    if (std::none_of(bytes.begin(), bytes.end(), [&](uint8_t known) { return same(known, one); })) bytes.push_back(one);
  }
  return bytes;
}

}  // namespace

SetReach::SetReach(std::shared_ptr<const TokenSet> set, const GrammarProgram& grammar)
    : set_(std::move(set)), representatives_(representatives(*set_, grammar)) {}

const SetReach::Step& SetReach::step(Pushdown& automaton, State from) {
  const auto known = steps_.find(from);
  if (known != steps_.end()) return known->second;
  return steps_.emplace(from, compute_step(automaton, from)).first->second;
}

SetReach::Step SetReach::compute_step(Pushdown& automaton, State from) const {
  const auto& character = set_->character();
  Step step;
  std::vector<std::pair<int16_t, State>> places{{0, from}};
  for (size_t i = 0; i < places.size() && step.all; ++i) {
    const auto [row, state] = places[i];
    for (const uint8_t byte : representatives_) {
      const int16_t inside = character[static_cast<size_t>(row)][byte];
      if (inside == TokenSet::kNone) continue;
      const State next = automaton.next(state, byte);
      if (next != Pushdown::kDead && i == 0) step.none = false;
      step.all = step.all && next != Pushdown::kDead && places.size() <= kMostPlaces;
      if (!step.all) {
        if (!step.none || i > 0) break;
      } else if (inside == TokenSet::kWhole) {
        add_once(step.to, next);
      } else {
        add_once(places, {inside, next});
      }
    }
  }
  return step;
}

// Breadth-first over states; stops at the first state that some character of the set cannot follow.
SetRun SetReach::run(Pushdown& automaton, State from) {
  SetRun run;
  std::vector<State> now{from}, next;
  bool met_again = false;
  for (; run.length < SetRun::kLongestRun; ++run.length) {
    bool all = true, none = true;
    next.clear();
    for (const State state : now) {
      const Step& one = step(automaton, state);
      all = all && one.all;
      none = none && one.none;
      for (const State to : one.to) {
        if (std::find(run.between.begin(), run.between.end(), to) != run.between.end()) {
          met_again = true;
        } else {
          next.push_back(to);
          run.between.push_back(to);
        }
      }
      if (!all && !none) return run;
    }
    if (!all) {
      run.closed = none && !met_again;
      return run;
    }
    if (next.empty()) {
      run.forever = true;
      break;
    }
    if (run.between.size() > kMostBetween) return run;
    now.swap(next);
  }
  run.length = SetRun::kLongestRun;
  return run;
}

SetReach::Reach SetReach::reach(Pushdown& automaton, State from) {
  Reach reach;
  if (set_->plain().worthwhile()) reach.plain = run(automaton, from);
  const bool covered = reach.plain.covers();
  reach.gain_plain = covered ? set_->plain().whole() : 0;
  std::vector<Behind> all;
  for (size_t byte = 0; byte < 256 && set_->behind().worthwhile(); ++byte) {
    const auto one = static_cast<uint8_t>(byte);
    const size_t tokens = set_->behind().whole(one);
    if (tokens == 0 || (covered && set_->character()[0][one] == TokenSet::kWhole)) continue;
    const State state = automaton.next(from, one);
    if (state == Pushdown::kDead) continue;
    auto known = std::find_if(all.begin(), all.end(), [&](const Behind& behind) { return behind.state == state; });
    if (known == all.end()) known = all.insert(known, {state, run(automaton, state), {}});
    known->bytes[byte] = true;
    if (known->run.covers()) reach.gain_behind += tokens;
  }
  for (Behind& behind : all) {
    if (behind.run.covers()) reach.behind.push_back(std::move(behind));
  }
  return reach;
}

void SetReach::add_allowed(Pushdown& automaton, State from, const Reach& reach, const TokenTrie& all,
                           std::span<uint32_t> mask) const {
  const bool covered = reach.plain.covers();
  if (covered) set_->plain().add_allowed(automaton, from, reach.plain, std::bitset<256>().set(), mask);
  std::bitset<256> done;
  for (const Behind& behind : reach.behind) {
    set_->behind().add_allowed(automaton, behind.state, behind.run, behind.bytes, mask);
    done |= behind.bytes;
  }
  const TokenTrie& rest = covered ? set_->rest() : all;
  for (const TokenTrie::Branch& branch : rest.branches()) {
    if (!done[branch.byte]) rest.add_allowed(automaton, from, branch, mask);
  }
}

size_t SetReach::memory() const {
  constexpr size_t kStepBytes = 80;
  return steps_.size() * kStepBytes;
}

}  // namespace millrace
