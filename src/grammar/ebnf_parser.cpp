#include "grammar/ebnf_parser.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

constexpr int kDeepestParsedGroup = 200;
constexpr int64_t kMostParsedRepeats = 1 << 20;

bool in_name(char c) { return is_ascii_alnum(c) || c == '_' || c == '-' || c == '.'; }

int hex_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  const char lower = ascii_lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : text_(text) {}

  GrammarRules parse() {
    for (skip_space(); at_ < text_.size(); skip_space()) {
      const std::string_view defined = name();
      const size_t rule = rule_of(defined);
      skip_space();
      if (!take("::=")) refuse("wants ::= behind the name of a rule");
      if (defined_[rule]) refuse(fmt::format("defines {} twice", shown(defined)));
      defined_[rule] = true;
      GrammarNode body = choice(0);
      if (peek() == ')') refuse("closes a group that was not opened");
      rules_.bodies[rule] = std::move(body);
    }
    for (const auto& [name, rule] : names_) {
      if (!defined_[rule]) fail(ErrorKind::Usage, "the grammar uses {}, which it does not define", shown(name));
    }
    const auto root = names_.find("root");
    if (root == names_.end()) fail(ErrorKind::Usage, "the grammar has no rule with the name root, where a text begins");
    rules_.root = root->second;
    return std::move(rules_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    const auto before = text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size()));
    fail(ErrorKind::Usage, "the grammar {} (line {})", what, 1 + std::count(text_.begin(), before, '\n'));
  }
  static std::string_view shown(std::string_view name) { return name.substr(0, 60); }

  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_ascii_space(text_[at_])) {
        ++at_;
      } else {
        return;
      }
    }
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  std::string_view name() {
    const size_t begin = at_;
    if (!in_name(peek())) refuse("has something that is no name, string, class or group");
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  size_t rule_of(std::string_view name) {
    const auto [found, fresh] = names_.try_emplace(std::string(name), rules_.bodies.size());
    if (fresh) {
      rules_.bodies.emplace_back();
      defined_.push_back(false);
    }
    return found->second;
  }

  // A name before ::= begins the next rule.
  bool rule_begins() {
    const size_t before = at_;
    if (!in_name(peek())) return false;
    name();
    skip_space();
    const bool begins = text_.substr(at_).starts_with("::=");
    at_ = before;
    return begins;
  }

  GrammarNode choice(int depth) {
    if (depth > kDeepestParsedGroup) refuse("has groups nested too deep");
    GrammarNode node{.kind = GrammarNode::Kind::Choice};
    do {
      node.parts.push_back(sequence(depth));
    } while (take("|"));
    if (node.parts.size() == 1 && is_nothing(node.parts.front()))
      refuse(R"(has a rule or group of nothing; write "" for no text)");
    return node.parts.size() == 1 ? std::move(node.parts.front()) : std::move(node);
  }

  GrammarNode sequence(int depth) {
    GrammarNode node{.kind = GrammarNode::Kind::Sequence};
    for (skip_space(); at_ < text_.size() && peek() != '|' && peek() != ')' && !rule_begins(); skip_space()) {
      node.parts.push_back(repeated(part(depth)));
    }
    return node.parts.size() == 1 ? std::move(node.parts.front()) : std::move(node);
  }

  // One of several alternatives may be empty.
  static bool is_nothing(const GrammarNode& node) {
    return node.kind == GrammarNode::Kind::Sequence && node.parts.empty();
  }

  GrammarNode part(int depth) {
    GrammarNode node;
    if (take("(")) {
      if (peek() == '=') refuse("has a lookahead, which is not supported");
      node = choice(depth + 1);
      if (!take(")")) refuse("has a group without end");
    } else if (peek() == '"' || peek() == '\'') {
      const char quote = text_[at_++];
      node.kind = GrammarNode::Kind::Literal;
      while (peek() != quote) append_utf8(node.literal, character());
      ++at_;
    } else if (take("[")) {
      node.kind = GrammarNode::Kind::Set;
      node.set = set();
    } else if (peek() == '.' && !in_name(at_ + 1 < text_.size() ? text_[at_ + 1] : '\0')) {
      ++at_;
      node.kind = GrammarNode::Kind::Set;
      node.set = CodeSet().complement();
    } else {
      node.kind = GrammarNode::Kind::Rule;
      node.rule = rule_of(name());
    }
    return node;
  }

  GrammarNode repeated(GrammarNode node) {
    for (bool again = false;; again = true) {
      skip_space();
      int64_t least = 0, most = -1;
      if (take("?")) {
        most = 1;
      } else if (take("+")) {
        least = 1;
      } else if (take("{")) {
        skip_space();
        least = most = peek() == ',' ? 0 : count();
        if (take(",")) {
          skip_space();
          most = peek() == '}' ? -1 : count();
        }
        skip_space();
        if (!take("}") || (most >= 0 && least > most)) refuse("has a repetition that is not {n}, {n,}, {,m} or {n,m}");
      } else if (!take("*")) {
        return node;
      }
      GrammarNode outer{.kind = GrammarNode::Kind::Repeat, .least = least, .most = most};
      outer.parts.push_back(std::move(node));
      node = std::move(outer);
      if (again && ++nested_ > kDeepestParsedGroup) refuse("repeats repetitions too often");
    }
  }
  int nested_ = 0;  // repetitions applied to repetitions, in all rules

  int64_t count() {
    skip_space();
    if (!is_ascii_digit(peek())) refuse("has a repetition that is not {n}, {n,}, {,m} or {n,m}");
    int64_t value = 0;
    while (is_ascii_digit(peek()) && value <= kMostParsedRepeats) value = value * 10 + (text_[at_++] - '0');
    skip_space();
    if (value > kMostParsedRepeats) refuse("repeats something too often");
    return value;
  }

  CodeSet set() {
    CodeSet found;
    const bool inverse = take("^");
    while (peek() != ']') {
      const uint32_t first = character();
      uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (first > last) refuse("has a class with a range that runs backwards");
      found.add(first, last);
    }
    ++at_;
    if (inverse) found = found.complement();
    if (found.empty()) refuse("has a class of no characters");
    return found;
  }

  // One character of a string or a class, escapes resolved.
  uint32_t character() {
    if (at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r')
      refuse("has a string or class that does not end on its line");
    if (text_[at_] == '\\') return escaped();
    if (step_utf8(text_, at_).kind != Utf8Step::Valid) fail(ErrorKind::Usage, "the grammar is not valid UTF-8");
    return next_utf8(text_, at_);
  }

  uint32_t escaped() {
    constexpr std::string_view kLetters = "abfnrtv0e", kMeanings("\a\b\f\n\r\t\v\0\x1B", 9);
    constexpr std::string_view kThemselves = "'\"?\\/-^$.*+()[]{}|";
    ++at_;
    const char letter = peek();
    if (at_ < text_.size()) ++at_;
    if (letter == 'x') return hexadecimal(0);
    if (letter == 'u') return hexadecimal(4);
    if (letter == 'U') return hexadecimal(8);
    if (kThemselves.find(letter) != std::string_view::npos) return static_cast<unsigned char>(letter);
    const size_t known = kLetters.find(letter);
    if (letter == '\0' || known == std::string_view::npos) refuse("has a backslash before something that wants none");
    return static_cast<unsigned char>(kMeanings[known]);
  }

  // digits 0: any number of digits.
  uint32_t hexadecimal(int digits) {
    uint32_t code = 0;
    int count = 0;
    for (; (digits == 0 || count < digits) && hex_value(peek()) >= 0; ++count, ++at_) {
      code = code * 16 + static_cast<uint32_t>(hex_value(peek()));
      if (code > CodeSet::kLast) refuse("names a character beyond those of Unicode");
    }
    if (count == 0 || count < digits) refuse("names a character with too few hexadecimal digits");
    if (code >= 0xD800 && code <= 0xDFFF) refuse("names half of a surrogate pair as a character");
    return code;
  }

  std::string_view text_;
  size_t at_ = 0;
  GrammarRules rules_;
  std::unordered_map<std::string, size_t> names_;
  std::vector<bool> defined_;
};

}  // namespace

GrammarRules parse_ebnf(std::string_view text) { return EbnfParser(text).parse(); }

}  // namespace millrace
