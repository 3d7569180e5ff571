#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "text/regex/class_parser.h"
#include "text/regex/pattern_reader.h"
#include "text/regex/syntax.h"

namespace millrace {
namespace {

using Kind = RegexNode::Kind;
using Anchor = RegexNode::Anchor;

constexpr int kDeepestGroup = 64;  // groups inside of groups

struct PatternLimits {
  size_t bytes;
  int64_t count;  // of {n,m}
};

PatternLimits limits_of(RegexDialect dialect) {
  return dialect == RegexDialect::Ecma ? PatternLimits{16 << 10, 10000} : PatternLimits{64 << 10, 1000};
}

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
  Parser(std::string_view pattern, RegexDialect dialect, RegexReading reading)
      : in_(pattern, dialect), dialect_(dialect), ecma_(dialect == RegexDialect::Ecma), reading_(reading) {
    if (pattern.size() > limits_of(dialect).bytes) in_.refuse("is too large");
  }

  RegexNode parse() {
    if (ecma_ && in_.accept("(?i)")) options_.ignore_case = true;
    RegexNode node = alternatives(0);
    if (!in_.at_end()) in_.refuse("has an unmatched )");
    return node;
  }

 private:
  // Up to the end or the closing parenthesis, which is not consumed.
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
      if (!ecma_ && skip_insignificant()) continue;
      if (!ecma_ && inline_options()) {  // they hold to the end of the group, alternatives included
        node.children.push_back(alternatives(depth + 1));
        break;
      }
      node.children.push_back(quantified(atom(depth)));
    }
    // A group with an assertion may be repeated, an assertion may not: it keeps the sequence around it.
    const bool lone = node.children.size() == 1 && !node.children[0].is_assertion();
    return lone ? std::move(node.children[0]) : std::move(node);
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

  // (?i) and the like; group() reads (?i:...).
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
        return set_node(parse_class(in_, meaning()));
      case '.':
        return set_node(meaning().dot(options_.dot_all));
      case '^':
        return anchor_node(ecma_ ? Anchor::TextBegin : Anchor::LineBegin);
      case '$':
        return anchor_node(ecma_ ? Anchor::TextEnd : Anchor::LineEnd);
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
        in_.refuse("repeats nothing");
      case '{':
        if (ecma_) refuse_quantifier();
        return literal(c);
      default:
        return literal(c);
    }
  }

  // Behind a '{' that follows nothing: it is an ordinary character unless it begins an interval.
  void refuse_quantifier() {
    const size_t behind = in_.position();
    int64_t min = 0, max = 0;
    in_.rewind(behind - 1);
    if (quantifier(min, max)) in_.refuse("repeats nothing");
    in_.rewind(behind);
  }

  ClassMeaning meaning() const { return {dialect_, reading_, options_.ignore_case}; }

  static RegexNode set_node(CodeSet set) {
    RegexNode node{Kind::Set};
    node.set = std::move(set);
    return node;
  }

  RegexNode literal(char32_t c) const {
    CodeSet set{{c, c}};
    if (!meaning().fold(set)) in_.refuse("has letters beyond ASCII beside (?i), where they must not match,");
    return set_node(std::move(set));
  }

  RegexNode escape() {
    if (in_.at_end()) in_.refuse("ends with a backslash");
    if (const auto anchor = ecma_ ? ecma_anchor() : std::nullopt) return in_.take(), anchor_node(*anchor);
    if (!ecma_) {
      if (auto node = oniguruma_node()) return std::move(*node);
    }
    if (auto set = parse_set_escape(in_, meaning(), false)) return set_node(std::move(*set));  // its case always counts
    return literal(parse_character_escape(in_));
  }

  // \A and \Z are Python's; JavaScript would read letters, which no pattern means by them.
  std::optional<Anchor> ecma_anchor() const {
    switch (in_.peek()) {
      case 'b':
        return Anchor::WordBorder;
      case 'A':
        return Anchor::TextBegin;
      case 'z':
      case 'Z':
        return Anchor::TextEnd;
      default:
        return std::nullopt;
    }
  }

  std::optional<RegexNode> oniguruma_node() {
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
        return std::nullopt;
    }
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
    const RegexReading saved_reading = reading_;
    RegexNode wrapper{Kind::Sequence};
    if (in_.accept('?')) {
      if (in_.accept('=')) {
        wrapper = look(false, false);
      } else if (in_.accept('!')) {
        wrapper = look(false, true);
      } else if (!ecma_ && in_.accept('>')) {
        wrapper.kind = Kind::Atomic;
      } else if (in_.starts_with("<=") || in_.starts_with("<!")) {
        wrapper = look(true, in_.starts_with("<!"));
        in_.skip(2);
      } else if (in_.accept('<') || (ecma_ && in_.accept("P<"))) {
        skip_name('>');
      } else if (!ecma_ && in_.accept('\'')) {
        skip_name('\'');
      } else if (!in_.accept(':')) {
        group_flags();
      }
    } else if (!ecma_ && in_.starts_with("*")) {
      in_.refuse("has a group of an unsupported kind");
    }
    if (wrapper.negative) reading_ = meaning().negated().reading;
    RegexNode body = alternatives(depth + 1);
    if (!in_.accept(')')) in_.refuse("has an unmatched (");
    options_ = saved;
    reading_ = saved_reading;
    if (wrapper.kind == Kind::Sequence) return body;
    wrapper.children.push_back(std::move(body));
    return wrapper;
  }

  // (?i:...), in Oniguruma's dialect any flags.
  void group_flags() {
    if (ecma_) {
      if (!in_.accept("i:")) in_.refuse("has a flag, which is understood as (?i) at the begin or of a group only,");
      options_.ignore_case = true;
    } else if (!read_flags(options_) || !in_.accept(':')) {
      in_.refuse("has a group of an unsupported kind");
    }
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
    if (ecma_) return quantified_once(std::move(node));
    int64_t min = 0, max = 0;
    for (int stacked = 0;; ++stacked) {
      const bool interval = !in_.at_end() && in_.peek() == '{';
      if (!quantifier(min, max)) return node;
      if (stacked == kDeepestGroup) in_.refuse("is nested too deeply");
      if (node.is_assertion()) in_.refuse("repeats a border or a lookaround");
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

  RegexNode quantified_once(RegexNode node) {
    int64_t min = 0, max = 0;
    if (!quantifier(min, max)) return node;
    if (node.is_assertion()) in_.refuse("repeats a border or a lookaround");
    const bool lazy = in_.accept('?');
    int64_t again = 0;
    if (quantifier(again, again)) in_.refuse("has two quantifiers in a row");
    return repeat(std::move(node), min, max, lazy);
  }

  // A brace that begins no interval is an ordinary character.
  bool quantifier(int64_t& min, int64_t& max) {
    if (in_.accept('*')) return min = 0, max = RegexNode::kUnbounded, true;
    if (in_.accept('+')) return min = 1, max = RegexNode::kUnbounded, true;
    if (in_.accept('?')) return min = 0, max = 1, true;
    const size_t start = in_.position();
    if (!in_.accept('{')) return false;
    const int64_t largest = limits_of(dialect_).count;
    const auto low = in_.number(largest);
    const bool comma = in_.accept(',');
    const auto high = comma ? in_.number(largest) : low;
    if (ecma_ && !low && comma && in_.peek() == '}')
      in_.refuse("has a repetition without its first number, which engines read differently,");
    if ((!low && !high) || !in_.accept('}')) return in_.rewind(start), false;
    min = low.value_or(0);
    max = high.value_or(RegexNode::kUnbounded);
    if (max != RegexNode::kUnbounded && max < min) in_.refuse("has an interval that ends before it begins");
    return true;
  }

  RegexNode repeat(RegexNode body, int64_t min, int64_t max, bool lazy) {
    if (!ecma_ && max == RegexNode::kUnbounded && body.can_be_empty()) {
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
  RegexDialect dialect_;
  bool ecma_;
  RegexReading reading_;
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

RegexNode parse_regex(std::string_view pattern, RegexDialect dialect, RegexReading reading) {
  return Parser(pattern, dialect, reading).parse();
}

}  // namespace millrace
