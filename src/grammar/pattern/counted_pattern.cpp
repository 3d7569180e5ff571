#include "grammar/pattern/counted_pattern.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kMostPositions = 1000;
constexpr int64_t kMostStates = 20000;  // positions times lengths

// Glushkov's automaton: a state is the position of the pattern that matched last.
class Positions {
 public:
  struct Part {
    bool may_be_empty = true;
    std::vector<int> first, last;
  };

  explicit Positions(const RegexNode& pattern) : whole_(add(pattern)), ends_(characters_.size()) {
    for (const int p : whole_.last) ends_[static_cast<size_t>(p)] = true;
  }

  const Part& whole() const { return whole_; }
  size_t size() const { return characters_.size(); }
  const CodeSet& characters(int p) const { return characters_[static_cast<size_t>(p)]; }
  const std::vector<int>& next(int p) const { return next_[static_cast<size_t>(p)]; }
  bool ends(int p) const { return ends_[static_cast<size_t>(p)]; }

 private:
  Part add(const RegexNode& node) {
    switch (node.kind) {
      case Kind::Set:
        return character(node.set);
      case Kind::Sequence: {
        Part part;
        for (const RegexNode& one : node.children) part = sequence(std::move(part), add(one));
        return part;
      }
      case Kind::Alternatives: {
        Part part{.may_be_empty = false};
        for (const RegexNode& one : node.children) part = choice(std::move(part), add(one));
        return part;
      }
      case Kind::Repeat:
        return repeat(node);
      default:
        fail(ErrorKind::Usage, "the regular expression has an assertion inside, which cannot be counted");
    }
  }

  Part character(const CodeSet& characters) {
    if (size() == kMostPositions)
      fail(ErrorKind::Usage, "the pattern is too large to be held to minLength or maxLength");
    const auto p = static_cast<int>(size());
    characters_.push_back(characters);
    next_.emplace_back();
    return {false, {p}, {p}};
  }

  Part sequence(Part a, Part b) {
    connect(a.last, b.first);
    if (a.may_be_empty) a.first.insert(a.first.end(), b.first.begin(), b.first.end());
    if (b.may_be_empty) b.last.insert(b.last.end(), a.last.begin(), a.last.end());
    return {a.may_be_empty && b.may_be_empty, std::move(a.first), std::move(b.last)};
  }

  static Part choice(Part a, const Part& b) {
    a.may_be_empty = a.may_be_empty || b.may_be_empty;
    a.first.insert(a.first.end(), b.first.begin(), b.first.end());
    a.last.insert(a.last.end(), b.last.begin(), b.last.end());
    return a;
  }

  // Copies the part max times; an unbounded repetition loops on its last copy.
  Part repeat(const RegexNode& node) {
    const bool endless = node.max < 0;
    const int64_t copies = endless ? std::max<int64_t>(node.min, 1) : node.max;
    Part part;
    for (int64_t i = 0; i < copies; ++i) {
      Part one = add(node.children.front());
      if (one.first.empty()) return part;  // repeats the empty text
      one.may_be_empty = one.may_be_empty || i >= node.min;
      if (endless && i == copies - 1) connect(one.last, one.first);
      part = sequence(std::move(part), std::move(one));
    }
    return part;
  }

  // `to` is sorted: positions are numbered in order. Most new ones follow the known ones and need no merge.
  void connect(const std::vector<int>& from, const std::vector<int>& to) {
    if (to.empty()) return;
    for (const int p : from) {
      auto& next = next_[static_cast<size_t>(p)];
      const bool in_order = next.empty() || next.back() < to.front();
      const auto known = static_cast<std::ptrdiff_t>(next.size());
      next.insert(next.end(), to.begin(), to.end());
      if (in_order) continue;
      std::inplace_merge(next.begin(), next.begin() + known, next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
    }
  }

  std::vector<CodeSet> characters_;
  std::vector<std::vector<int>> next_;
  Part whole_;
  std::vector<bool> ends_;
};

class CountedWriter {
 public:
  CountedWriter(const Positions& positions, Lengths lengths, FunctionRef<GrammarNode(const CodeSet&)> character,
                RuleBuilder& builder)
      : positions_(positions),
        lengths_(lengths),
        longest_(lengths.most < 0 ? lengths.least : lengths.most),
        character_(character),
        builder_(builder) {
    if (static_cast<int64_t>(positions.size()) * (longest_ + 1) > kMostStates)
      fail(ErrorKind::Usage, "the pattern is too large to be held to minLength or maxLength");
    find_dead_ends();
  }

  std::optional<GrammarNode> write() {
    std::vector<GrammarNode> first = continuations(positions_.whole().first, 0);
    if (positions_.whole().may_be_empty && lengths_.least == 0) first.push_back(node::empty());
    while (!pending_.empty()) {
      const auto [p, length] = pending_.back();
      pending_.pop_back();
      std::vector<GrammarNode> rest = continuations(positions_.next(p), length);
      if (positions_.ends(p) && length >= lengths_.least) rest.push_back(node::empty());
      builder_.define(rules_[{p, length}], *node::choice_of(std::move(rest)));
    }
    return node::choice_of(std::move(first));
  }

 private:
  using State = std::pair<int, int64_t>;  // the position matched last, the number of characters so far

  // Without a maximum, counting stops at the minimum.
  int64_t counted(int64_t length) const { return lengths_.most < 0 ? std::min(length, lengths_.least) : length; }

  bool lives(int p, int64_t length) const {
    return length <= longest_ && live_[static_cast<size_t>(length)][static_cast<size_t>(p)];
  }

  void find_dead_ends() {
    live_.assign(static_cast<size_t>(longest_) + 1, std::vector<bool>(positions_.size(), lengths_.most < 0));
    for (int64_t length = longest_ - (lengths_.most < 0 ? 1 : 0); length >= 0; --length) {
      for (int p = 0; p < static_cast<int>(positions_.size()); ++p) {
        const auto& next = positions_.next(p);
        const bool goes_on = std::any_of(next.begin(), next.end(), [&](int q) { return lives(q, length + 1); });
        live_[static_cast<size_t>(length)][static_cast<size_t>(p)] =
            goes_on || (positions_.ends(p) && length >= lengths_.least);
      }
    }
  }

  std::vector<GrammarNode> continuations(const std::vector<int>& next, int64_t length) {
    std::vector<GrammarNode> ways;
    size_t written = 0;
    for (const int q : next) {
      const State state{q, counted(length + 1)};
      if (!lives(q, state.second)) continue;
      const auto [rule, is_new] = rules_.try_emplace(state);
      if (is_new) {
        rule->second = builder_.reserve();
        pending_.push_back(state);
      }
      ways.push_back(node::sequence(character_(positions_.characters(q)), rule->second));
      written += written_size(ways.back());
      if (written > RuleBuilder::kMostBytes) builder_.spend(written);  // throws before a hostile rule is huge
    }
    return ways;
  }

  const Positions& positions_;
  Lengths lengths_;
  int64_t longest_;
  FunctionRef<GrammarNode(const CodeSet&)> character_;
  RuleBuilder& builder_;
  std::vector<std::vector<bool>> live_;  // by length and position: whether a match can still be completed
  std::map<State, GrammarNode> rules_;
  std::vector<State> pending_;
};

}  // namespace

std::optional<GrammarNode> counted_pattern_rule(const RegexNode& pattern, Lengths lengths,
                                                FunctionRef<GrammarNode(const CodeSet&)> character,
                                                RuleBuilder& builder) {
  const Positions positions(pattern);
  return CountedWriter(positions, lengths, character, builder).write();
}

bool pattern_matches(const RegexNode& pattern, std::span<const uint32_t> text, RuleBuilder& builder) {
  const Positions positions(pattern);
  size_t steps = 0;  // upper bound for one character
  for (size_t p = 0; p < positions.size(); ++p) steps += positions.next(static_cast<int>(p)).size();
  // Parsing and building take microseconds per position, building 50 ns per edge, matching 1 ns per edge: the bound of
  // the grammar is then about a second.
  builder.spend(2 + positions.size() / 2 + steps / 64 + steps * text.size() / 1024);
  if (text.empty()) return positions.whole().may_be_empty;
  std::vector<bool> matched(positions.size()), next(positions.size());
  const auto step = [&](const std::vector<int>& to, uint32_t code) {
    for (const int p : to) {
      if (positions.characters(p).contains(code)) next[static_cast<size_t>(p)] = true;
    }
  };
  step(positions.whole().first, text.front());
  for (const uint32_t code : text.subspan(1)) {
    matched.swap(next);
    next.assign(positions.size(), false);
    for (size_t p = 0; p < matched.size(); ++p) {
      if (matched[p]) step(positions.next(static_cast<int>(p)), code);
    }
  }
  for (size_t p = 0; p < next.size(); ++p) {
    if (next[p] && positions.ends(static_cast<int>(p))) return true;
  }
  return false;
}

}  // namespace millrace
