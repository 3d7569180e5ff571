#include <algorithm>
#include <string>

#include "base/error.h"
#include "text/regex/class_parser.h"
#include "text/regex/pattern_reader.h"
#include "text/regex/syntax.h"

namespace millrace {
namespace {

using Kind = RegexNode::Kind;
using Anchor = RegexNode::Anchor;

constexpr int kDeepestGroup = 60;    // groups inside of groups
constexpr int kLargestCount = 1000;  // of {n,m}

struct Options {
  bool ignore_case = false, dot_all = false, extended = false;
};

RegexNode anchor_node(Anchor anchor) {
  RegexNode node{Kind::Anchor};
  node.anchor = anchor;
  return node;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : in_(pattern) {}

  RegexNode parse() {
    RegexNode node = alternatives(0);
    if (!in_.at_end()) in_.refuse("has an unmatched )");
    return node;
  }

 private:
  // Up to the end or the closing parenthesis, which is left to the caller.
  RegexNode alternatives(int depth) {
    if (depth > kDeepestGroup) in_.refuse("is nested too deeply");
    const Options saved = options_;
    RegexNode all{Kind::Alternatives};
    do all.children.push_back(sequence(depth));
    while (in_.accept('|'));
    options_ = saved;
    return all.children.size() == 1 ? std::move(all.children[0]) : std::move(all);
  }

  RegexNode sequence(int depth) {
    RegexNode node{Kind::Sequence};
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      if (skip_insignificant()) continue;
      if (inline_options()) {
        // From here to the end of the group, alternatives included.
        node.children.push_back(alternatives(depth + 1));
        break;
      }
      node.children.push_back(quantified(atom(depth)));
    }
    return node.children.size() == 1 ? std::move(node.children[0]) : std::move(node);
  }

  bool skip_insignificant() {
    if (in_.starts_with("(?#")) {
      while (!in_.at_end() && in_.peek() != ')') in_.take();
      if (!in_.accept(')')) in_.refuse("has a comment without end");
      return true;
    }
    if (!options_.extended) return false;
    if (in_.accept('#')) {
      while (!in_.at_end() && in_.peek() != '\n') in_.take();
      return true;
    }
    const char32_t c = in_.peek();
    if (c != ' ' && (c < '\t' || c > '\r')) return false;
    in_.take();
    return true;
  }

  // (?i) and the like; (?i:...) is left for group().
  bool inline_options() {
    if (!in_.starts_with("(?")) return false;
    const size_t start = in_.position();
    in_.skip(2);
    Options options = options_;
    if (read_flags(options) && in_.accept(')')) {
      options_ = options;
      return true;
    }
    in_.rewind(start);
    return false;
  }

  bool read_flags(Options& options) {
    bool value = true, any = false;
    for (;; any = true) {
      if (in_.accept('-')) {
        value = false;
      } else if (in_.accept('i')) {
        options.ignore_case = value;
      } else if (in_.accept('m')) {
        options.dot_all = value;
      } else if (in_.accept('x')) {
        options.extended = value;
      } else {
        return any;
      }
    }
  }

  RegexNode atom(int depth) {
    const char32_t c = in_.take();
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return set_node(parse_class(in_, options_.ignore_case));
      case '.':
        return set_node(options_.dot_all ? CodeSet{{0, 0x10FFFF}} : CodeSet{{'\n', '\n'}}.complement());
      case '^':
        return anchor_node(Anchor::LineBegin);
      case '$':
        return anchor_node(Anchor::LineEnd);
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
        in_.refuse("repeats nothing");
      default:
        return literal(c);
    }
  }

  static RegexNode set_node(CodeSet set) {
    RegexNode node{Kind::Set};
    node.set = std::move(set);
    return node;
  }

  RegexNode literal(char32_t c) const {
    CodeSet set{{c, c}};
    if (options_.ignore_case) set.fold_case();
    return set_node(std::move(set));
  }

  RegexNode escape() {
    if (in_.at_end()) in_.refuse("ends with a backslash");
    switch (in_.peek()) {
      case 'A':
        return in_.take(), anchor_node(Anchor::TextBegin);
      case 'z':
        return in_.take(), anchor_node(Anchor::TextEnd);
      case 'Z':
        return in_.take(), anchor_node(Anchor::LastLineEnd);
      case 'b':
        return in_.take(), anchor_node(Anchor::WordBorder);
      case 'B':
        return in_.take(), anchor_node(Anchor::NoWordBorder);
      case 'R':
        return in_.take(), any_line_break();
      case 'G':
      case 'K':
      case 'X':
      case 'y':
      case 'Y':
      case 'k':
      case 'g':
        in_.refuse(fmt::format("uses \\{}, which is not supported", static_cast<char>(in_.peek())));
      default:
        break;
    }
    if (auto set = parse_set_escape(in_, false)) return set_node(std::move(*set));  // its case always counts
    return literal(parse_character_escape(in_));
  }

  static RegexNode any_line_break() {
    RegexNode pair{Kind::Sequence}, either{Kind::Alternatives}, atomic{Kind::Atomic};
    pair.children = {set_node({{'\r', '\r'}}), set_node({{'\n', '\n'}})};
    either.children = {std::move(pair), set_node({{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}})};
    atomic.children = {std::move(either)};
    return atomic;
  }

  RegexNode group(int depth) {
    const Options saved = options_;
    RegexNode wrapper{Kind::Sequence};
    if (in_.accept('?')) {
      if (in_.accept('=')) {
        wrapper = look(false, false);
      } else if (in_.accept('!')) {
        wrapper = look(false, true);
      } else if (in_.accept('>')) {
        wrapper.kind = Kind::Atomic;
      } else if (in_.starts_with("<=") || in_.starts_with("<!")) {
        wrapper = look(true, in_.starts_with("<!"));
        in_.skip(2);
      } else if (in_.accept('<')) {
        skip_name('>');
      } else if (in_.accept('\'')) {
        skip_name('\'');
      } else if (!in_.accept(':')) {
        if (!read_flags(options_) || !in_.accept(':')) in_.refuse("has a group of an unsupported kind");
      }
    } else if (in_.starts_with("*")) {
      in_.refuse("has a group of an unsupported kind");
    }
    RegexNode body = alternatives(depth + 1);
    if (!in_.accept(')')) in_.refuse("has an unmatched (");
    options_ = saved;
    if (wrapper.kind == Kind::Sequence) return body;
    wrapper.children.push_back(std::move(body));
    return wrapper;
  }

  static RegexNode look(bool behind, bool negative) {
    RegexNode node{Kind::Look};
    node.behind = behind;
    node.negative = negative;
    return node;
  }

  void skip_name(char32_t closing) {
    while (!in_.at_end() && in_.peek() != closing) in_.take();
    if (!in_.accept(closing)) in_.refuse("has a group name without end");
  }

  RegexNode quantified(RegexNode node) {
    for (int min = 0, max = 0, stacked = 0;; ++stacked) {
      const bool interval = !in_.at_end() && in_.peek() == '{';
      if (!quantifier(min, max)) return node;
      if (stacked == kDeepestGroup) in_.refuse("is nested too deeply");
      if (node.kind == Kind::Anchor || node.kind == Kind::Look) in_.refuse("repeats a border or a lookaround");
      if (interval && min == max && in_.accept('?')) {  // {n}? is (?:...{n})?
        node = repeat(repeat(std::move(node), min, max, false), 0, 1, false);
      } else if (in_.accept('?')) {
        node = repeat(std::move(node), min, max, true);
      } else {
        node = repeat(std::move(node), min, max, false);
        if (!interval && in_.accept('+')) {
          RegexNode atomic{Kind::Atomic};
          atomic.children.push_back(std::move(node));
          node = std::move(atomic);
        }
      }
    }
  }

  // A brace that begins no interval is an ordinary character.
  bool quantifier(int& min, int& max) {
    if (in_.accept('*')) return min = 0, max = RegexNode::kUnbounded, true;
    if (in_.accept('+')) return min = 1, max = RegexNode::kUnbounded, true;
    if (in_.accept('?')) return min = 0, max = 1, true;
    const size_t start = in_.position();
    if (!in_.accept('{')) return false;
    const auto low = in_.number(kLargestCount);
    const bool comma = in_.accept(',');
    const auto high = comma ? in_.number(kLargestCount) : low;
    if ((!low && !high) || !in_.accept('}')) return in_.rewind(start), false;
    min = low.value_or(0);
    max = high.value_or(RegexNode::kUnbounded);
    if (max != RegexNode::kUnbounded && max < min) in_.refuse("has an interval that ends before it begins");
    return true;
  }

  RegexNode repeat(RegexNode body, int min, int max, bool lazy) {
    if (max == RegexNode::kUnbounded && body.can_be_empty()) {
      const bool simple = body.kind == Kind::Repeat && !body.lazy && !lazy && !body.children[0].can_be_empty();
      if (!simple) in_.refuse("repeats without limit what may be empty");
      if (body.min == 0) min = 0;  // (x*)+ and (x?)* are x*
      RegexNode inside = std::move(body.children[0]);
      body = std::move(inside);
    }
    RegexNode node{Kind::Repeat};
    node.min = min;
    node.max = max;
    node.lazy = lazy;
    node.children.push_back(std::move(body));
    return node;
  }

  PatternReader in_;
  Options options_;
};

}  // namespace

bool RegexNode::can_be_empty() const {
  const auto empty = [](const RegexNode& child) { return child.can_be_empty(); };
  switch (kind) {
    case Kind::Set:
      return false;
    case Kind::Sequence:
      return std::all_of(children.begin(), children.end(), empty);
    case Kind::Alternatives:
      return std::any_of(children.begin(), children.end(), empty);
    case Kind::Repeat:
      return min == 0 || children[0].can_be_empty();
    case Kind::Atomic:
      return children[0].can_be_empty();
    case Kind::Look:
    case Kind::Anchor:
      return true;
  }
  return true;
}

RegexNode parse_regex(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace millrace
