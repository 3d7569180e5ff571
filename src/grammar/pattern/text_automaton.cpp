#include "grammar/pattern/text_automaton.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

using Id = TextLanguages::Id;

constexpr size_t kMostTextStates = 4000;
constexpr int kNowhere = -1;

struct Automaton {
  std::vector<CodeSet> classes;
  std::vector<std::vector<int>> next;  // by state and class; state 0 is the start
  std::vector<bool> ends;
};

Automaton automaton_of(TextLanguages& languages, Id language, const CodeSet& written) {
  Automaton result;
  for (const CodeSet& one : languages.classes(language)) {
    const CodeSet can_be = one.without(written.complement());
    if (!can_be.empty()) result.classes.push_back(can_be);
  }
  std::vector<Id> states = {language};
  std::map<Id, int> numbers = {{language, 0}};
  for (size_t at = 0; at < states.size(); ++at) {
    if (states.size() > kMostTextStates)
      fail(ErrorKind::Usage, "the patterns of a text are too large together: they make more than {} states",
           kMostTextStates);
    std::vector<int> row;
    for (const CodeSet& one : result.classes) {
      const Id to = languages.after(states[at], one.ranges().front().first);
      const auto [found, fresh] = numbers.try_emplace(to, static_cast<int>(states.size()));
      if (fresh) states.push_back(to);
      row.push_back(found->second);
    }
    result.next.push_back(std::move(row));
    result.ends.push_back(languages.has_empty(states[at]));
  }
  return result;
}

// Removes edges to states that reach no final state.
void cut_dead_ends(Automaton& automaton) {
  std::vector<std::vector<int>> before(automaton.next.size());
  std::vector<int> open;
  std::vector<bool> lives = automaton.ends;
  for (size_t state = 0; state < automaton.next.size(); ++state) {
    for (const int to : automaton.next[state]) before[static_cast<size_t>(to)].push_back(static_cast<int>(state));
    if (lives[state]) open.push_back(static_cast<int>(state));
  }
  while (!open.empty()) {
    const auto state = static_cast<size_t>(open.back());
    open.pop_back();
    for (const int from : before[state]) {
      if (lives[static_cast<size_t>(from)]) continue;
      lives[static_cast<size_t>(from)] = true;
      open.push_back(from);
    }
  }
  for (std::vector<int>& row : automaton.next) {
    for (int& to : row) to = lives[static_cast<size_t>(to)] ? to : kNowhere;
  }
}

// Numbers the equivalence classes of states (Moore's minimization).
std::vector<int> numbers_of(const Automaton& automaton, RuleBuilder& builder) {
  std::vector<int> numbers(automaton.ends.begin(), automaton.ends.end());
  for (size_t count = 0;;) {
    std::map<std::vector<int>, int> kinds;
    std::vector<int> finer;
    for (size_t state = 0; state < automaton.next.size(); ++state) {
      std::vector<int> kind = {numbers[state]};
      for (const int to : automaton.next[state])
        kind.push_back(to == kNowhere ? kNowhere : numbers[static_cast<size_t>(to)]);
      finer.push_back(kinds.try_emplace(std::move(kind), static_cast<int>(kinds.size())).first->second);
    }
    builder.spend(automaton.next.size() * (1 + automaton.classes.size()) / 512);
    numbers = std::move(finer);
    if (kinds.size() == count) return numbers;
    count = kinds.size();
  }
}

}  // namespace

std::optional<GrammarNode> language_rule(TextLanguages& languages, Id language, const CodeSet& written,
                                         FunctionRef<GrammarNode(const CodeSet&)> character, RuleBuilder& builder) {
  Automaton automaton = automaton_of(languages, language, written);
  cut_dead_ends(automaton);
  const auto leaves = [&](size_t state) {
    const std::vector<int>& row = automaton.next[state];
    return std::any_of(row.begin(), row.end(), [](int to) { return to != kNowhere; });
  };
  if (!automaton.ends[0] && !leaves(0)) return {};
  const std::vector<int> numbers = numbers_of(automaton, builder);
  std::map<int, GrammarNode> rules;
  for (const int number : numbers) {
    if (!rules.contains(number)) rules.emplace(number, builder.reserve());
  }
  std::vector<bool> is_written(numbers.size());
  for (size_t state = 0; state < automaton.next.size(); ++state) {
    std::vector<bool>::reference done = is_written[static_cast<size_t>(numbers[state])];
    if (done || (!automaton.ends[state] && !leaves(state))) continue;
    done = true;
    std::map<int, CodeSet> edges;
    for (size_t i = 0; i < automaton.classes.size(); ++i) {
      const int to = automaton.next[state][i];
      if (to != kNowhere) edges[numbers[static_cast<size_t>(to)]].add(automaton.classes[i]);
    }
    GrammarNode loop = node::empty();
    std::vector<GrammarNode> ways;
    if (automaton.ends[state]) ways.push_back(node::empty());
    for (const auto& [to, characters] : edges) {
      if (to == numbers[state]) {
        loop = node::any_number(builder.add(character(characters)));
      } else {
        ways.push_back(node::sequence(character(characters), rules.at(to)));
      }
    }
    builder.define(rules.at(numbers[state]), node::sequence(std::move(loop), *node::choice_of(std::move(ways))));
  }
  return rules.at(numbers[0]);
}

bool has_text(TextLanguages& languages, Id language, const CodeSet& written) {
  const Automaton automaton = automaton_of(languages, language, written);
  return std::find(automaton.ends.begin(), automaton.ends.end(), true) != automaton.ends.end();
}

size_t count_states(TextLanguages& languages, Id language, const CodeSet& written) {
  return automaton_of(languages, language, written).next.size();
}

}  // namespace millrace
