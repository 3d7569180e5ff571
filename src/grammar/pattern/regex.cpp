#include "grammar/pattern/regex.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/pattern/counted_pattern.h"
#include "grammar/pattern/pattern_language.h"
#include "grammar/pattern/pattern_lengths.h"
#include "grammar/pattern/text_automaton.h"
#include "grammar/pattern/text_rules.h"
#include "text/regex/syntax.h"

namespace millrace {
namespace {

using Kind = RegexNode::Kind;

constexpr int64_t kFarLength = 256;
constexpr int64_t kMostRegexStates = 20000;  // positions, repetitions unrolled

const CodeSet kMustBeEscaped{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

// Number of positions of the pattern with its repetitions unrolled.
int64_t states_of(const RegexNode& node) {
  int64_t states = 1;
  for (const RegexNode& part : node.children) states += states_of(part);
  if (node.kind == Kind::Repeat && node.children.front().kind != Kind::Set) {
    states = multiply_counts(states, std::max<int64_t>({node.min, node.max, 1}));
  }
  return std::min<int64_t>(states, int64_t{1} << 40);
}

void require_small(const RegexNode& pattern) {
  if (states_of(pattern) > kMostRegexStates)
    fail(ErrorKind::Usage, "the regular expression is too large: its repetitions multiply to more than {}",
         kMostRegexStates);
}

class Writer {
 public:
  Writer(RegexUse use, RuleBuilder& builder) : json_(use == RegexUse::JsonString), builder_(builder) {}

  GrammarNode write(const RegexNode& node) {
    switch (node.kind) {
      case Kind::Set:
        return character(node.set);
      case Kind::Sequence:
        return spend(node::sequence_of(all(node.children)));
      case Kind::Alternatives:
        return builder_.add(spend(*node::choice_of(all(node.children))));
      case Kind::Repeat:
        return node::repeat(builder_.add(write(node.children.front())), node.min, node.max);
      default:
        fail(ErrorKind::Usage, "the regular expression has an assertion inside");
    }
  }

  GrammarNode character(const CodeSet& characters) const {
    return json_ ? json_character(characters) : node::one_of(characters);
  }

 private:
  std::vector<GrammarNode> all(const std::vector<RegexNode>& parts) {
    std::vector<GrammarNode> nodes;
    for (const RegexNode& part : parts) nodes.push_back(write(part));
    return nodes;
  }
  GrammarNode spend(GrammarNode node) {
    builder_.spend(written_size(node));
    return node;
  }

  bool json_;
  RuleBuilder& builder_;
};

// One alternative of a pattern without its outer anchors. In a JSON string, any text may surround a match that is not
// anchored.
struct Anchored {
  RegexNode node;
  bool begin = false, end = false;
};

std::vector<Anchored> alternatives(RegexNode node) {
  std::vector<Anchored> result;
  if (node.kind == Kind::Alternatives) {
    for (RegexNode& part : node.children) {
      for (Anchored& inside : alternatives(std::move(part))) result.push_back(std::move(inside));
    }
    return result;
  }
  Anchored anchored;
  auto& parts = node.children;
  const auto is = [](const RegexNode& part, RegexNode::Anchor anchor) {
    return part.kind == Kind::Anchor && part.anchor == anchor;
  };
  if (node.kind == Kind::Sequence) {
    // ^(a|b)$ has its anchors outside of the alternatives.
    while (!parts.empty() && is(parts.front(), RegexNode::Anchor::TextBegin)) {
      anchored.begin = true;
      parts.erase(parts.begin());
    }
    while (!parts.empty() && is(parts.back(), RegexNode::Anchor::TextEnd)) {
      anchored.end = true;
      parts.pop_back();
    }
    if (parts.size() == 1 && !anchored.begin && !anchored.end) return alternatives(std::move(parts.front()));
  }
  anchored.node = std::move(node);
  result.push_back(std::move(anchored));
  return result;
}

// A repetition of single characters, such as [class]*, alone or among parts of fixed length: its counts determine the
// length of the whole.
struct Flexible {
  RegexNode* repeat = nullptr;
  int64_t fixed = 0;  // characters of the other parts
};

Flexible flexible_part(RegexNode& node) {
  const auto is_one = [](const PatternLengths& range) { return range.least == 1 && range.most == 1; };
  if (node.kind == Kind::Repeat) return {is_one(lengths_of(node.children.front())) ? &node : nullptr};
  if (node.kind != Kind::Sequence) return {};
  Flexible found;
  for (RegexNode& part : node.children) {
    const PatternLengths range = lengths_of(part);
    if (range.least == range.most) {
      found.fixed += range.least;
      continue;
    }
    const Flexible inside = flexible_part(part);
    if (inside.repeat == nullptr || found.repeat != nullptr) return {};
    found.repeat = inside.repeat;
    found.fixed += inside.fixed;
  }
  return found;
}

int64_t tighter(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

enum class Fit : uint8_t { Never, Always, Counted };

// Whether matches have such a length. Adjusts the counts of a flexible part so that they do.
Fit restrict_lengths(RegexNode& node, Lengths lengths) {
  const PatternLengths range = lengths_of(node);
  const bool fits =
      range.least >= lengths.least && (lengths.most < 0 || (range.most >= 0 && range.most <= lengths.most));
  if (fits) return Fit::Always;
  if ((lengths.most >= 0 && range.least > lengths.most) || (range.most >= 0 && range.most < lengths.least))
    return Fit::Never;
  const auto [repeat, fixed] = flexible_part(node);
  if (repeat == nullptr) return Fit::Counted;
  repeat->min = std::max(repeat->min, lengths.least - fixed);
  repeat->max = tighter(repeat->max, lengths.most < 0 ? -1 : lengths.most - fixed);
  return repeat->max >= 0 && repeat->min > repeat->max ? Fit::Never : Fit::Always;
}

RegexNode anything() {
  RegexNode character{.kind = Kind::Set};
  character.set = any_character();
  RegexNode repeat{.kind = Kind::Repeat, .min = 0, .max = RegexNode::kUnbounded};
  repeat.children.push_back(std::move(character));
  return repeat;
}

RegexNode with_surroundings(Anchored anchored) {
  if (anchored.begin && anchored.end) return std::move(anchored.node);
  RegexNode whole{.kind = Kind::Sequence};
  if (!anchored.begin) whole.children.push_back(anything());
  whole.children.push_back(std::move(anchored.node));
  if (!anchored.end) whole.children.push_back(anything());
  return whole;
}

// Counting up to large lengths would take too many rules. The match comes first then, and arbitrary text behind it
// fills up the length.
Anchored with_match_first(Anchored anchored, Lengths lengths) {
  const PatternLengths range = lengths_of(anchored.node);
  const int64_t least = std::max<int64_t>(lengths.least - range.least, 0), most = lengths.most - range.most;
  if (lengths.most < kFarLength || anchored.end || range.most < 0 || least > most) return anchored;
  RegexNode whole{.kind = Kind::Sequence};
  whole.children.push_back(std::move(anchored.node));
  whole.children.push_back(anything());
  whole.children.back().min = least;
  whole.children.back().max = most;
  return {std::move(whole), true, true};
}

bool any_needs_automaton(const std::vector<Anchored>& ways) {
  return std::any_of(ways.begin(), ways.end(), [](const Anchored& way) { return needs_automaton(way.node); });
}

std::optional<GrammarNode> by_automaton(std::string_view regex, RegexUse use, Lengths lengths, RuleBuilder& builder) {
  TextLanguages languages(builder);
  const TextLanguages::Id language = pattern_language(regex, use, languages);
  if (use == RegexUse::JsonString) return json_text_rule(languages, language, lengths, builder);
  const auto plain = [](const CodeSet& set) { return node::one_of(set); };
  return language_rule(languages, language, any_character(), plain, builder);
}

}  // namespace

CodeSet any_character() { return CodeSet().complement(); }

GrammarNode json_character(const CodeSet& characters) {
  std::vector<GrammarNode> ways;
  const CodeSet plain = characters.without(kMustBeEscaped);
  if (!plain.empty()) ways.push_back(node::one_of(plain));
  constexpr std::pair<uint32_t, char> kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                    {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  for (const auto& [code, letter] : kEscapes) {
    if (characters.contains(code)) ways.push_back(node::literal(std::string("\\") + letter));
  }
  if (ways.empty()) fail(ErrorKind::Usage, "the pattern wants a control character, which is not supported");
  return *node::choice_of(std::move(ways));
}

bool regex_matches(std::string_view regex, std::string_view text, RuleBuilder& builder) {
  RegexNode parsed = parse_regex(regex, RegexDialect::Ecma);
  require_small(parsed);
  const std::vector<uint32_t> codes = code_points(text);
  std::vector<Anchored> ways = alternatives(std::move(parsed));
  if (any_needs_automaton(ways)) return text_follows({.patterns = {std::string(regex)}}, std::string(text), builder);
  return std::any_of(ways.begin(), ways.end(), [&](Anchored& anchored) {
    return pattern_matches(with_surroundings(std::move(anchored)), codes, builder);
  });
}

std::optional<GrammarNode> regex_rule(std::string_view regex, RegexUse use, Lengths lengths, RuleBuilder& builder) {
  RegexNode parsed = parse_regex(regex, RegexDialect::Ecma);
  require_small(parsed);
  std::vector<Anchored> ways = alternatives(std::move(parsed));
  if (any_needs_automaton(ways)) return by_automaton(regex, use, lengths, builder);
  std::vector<GrammarNode> matches;
  for (Anchored& anchored : ways) {
    RegexNode node = use == RegexUse::Answer ? std::move(anchored.node)
                                             : with_surroundings(with_match_first(std::move(anchored), lengths));
    const Fit fit = restrict_lengths(node, lengths);
    if (fit == Fit::Never) continue;
    Writer writer(use, builder);
    if (fit == Fit::Always) {
      matches.push_back(writer.write(node));
      continue;
    }
    auto counted = counted_pattern_rule(
        node, lengths, [&](const CodeSet& set) { return writer.character(set); }, builder);
    if (counted) matches.push_back(std::move(*counted));
  }
  if (matches.empty()) return {};
  return builder.add(*node::choice_of(std::move(matches)));
}

}  // namespace millrace
