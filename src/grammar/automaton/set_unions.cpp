#include "grammar/automaton/set_unions.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMostUnions = 32;
constexpr size_t kMostVisits = 4000;  // nodes, for one rule
constexpr size_t kMostVisitsOfAll = 200000;

class FirstSets {
 public:
  explicit FirstSets(const GrammarRules& rules) : rules_(rules), entered_(rules.bodies.size(), 0) {}

  // Empty: there are fewer than two sets.
  CodeSet of(size_t rule) {
    sets_.clear();
    visits_ = 0;
    ++round_;
    enter(rule);
    CodeSet all;
    if (sets_.size() > 1) {
      for (const CodeSet* set : sets_) all.add(*set);
    }
    all_visits_ += visits_;
    return all;
  }

  bool tired() const { return all_visits_ > kMostVisitsOfAll; }

 private:
  void enter(size_t rule) {
    if (entered_[rule] == round_) return;
    entered_[rule] = round_;
    visit(rules_.bodies[rule]);
  }

  // Returns whether the node can be empty; a rule counts as non-empty.
  bool visit(const GrammarNode& node) {
    if (++visits_ > kMostVisits) return false;
    switch (node.kind) {
      case GrammarNode::Kind::Literal:
        return node.literal.empty();
      case GrammarNode::Kind::Set:
        if (std::none_of(sets_.begin(), sets_.end(), [&](const CodeSet* set) { return *set == node.set; }))
          sets_.push_back(&node.set);
        return false;
      case GrammarNode::Kind::Rule:
        enter(node.rule);
        return false;
      case GrammarNode::Kind::Sequence:
        return std::all_of(node.parts.begin(), node.parts.end(), [&](const GrammarNode& part) { return visit(part); });
      case GrammarNode::Kind::Choice: {
        bool skips = false;
        for (const GrammarNode& part : node.parts) skips = visit(part) || skips;
        return skips;
      }
      case GrammarNode::Kind::Repeat:
        return visit(node.parts.front()) || node.least == 0;
    }
    return false;
  }

  const GrammarRules& rules_;
  std::vector<const CodeSet*> sets_;
  std::vector<size_t> entered_;  // round of the last visit, by rule
  size_t round_ = 0, visits_ = 0, all_visits_ = 0;
};

}  // namespace

std::vector<CodeSet> united_first_sets(const GrammarRules& rules) {
  std::vector<CodeSet> unions;
  FirstSets first(rules);
  for (size_t rule = 0; rule < rules.bodies.size() && unions.size() < kMostUnions && !first.tired(); ++rule) {
    CodeSet all = first.of(rule);
    if (!all.empty() && std::find(unions.begin(), unions.end(), all) == unions.end()) unions.push_back(std::move(all));
  }
  return unions;
}

}  // namespace millrace
