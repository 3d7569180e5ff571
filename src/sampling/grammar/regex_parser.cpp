#include <algorithm>
#include <optional>

#include "base/error.h"
#include "sampling/grammar/regex_ast.h"

namespace millrace {
namespace {

constexpr size_t kLongestRegex = 16 << 10;
constexpr int kDeepestGroup = 64;
constexpr int64_t kMostRegexRepeats = 10000;

const CharSet kDigits{{'0', '9'}};
const CharSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpace{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}};
const CharSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::string_view regex) : codes_(code_points(regex)) {}

  PatternNode parse() {
    PatternNode node = choice(0);
    if (at_ < codes_.size()) refuse("a ')' that closes nothing");
    return node;
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorKind::Usage, "the regular expression has {} at character {}", what, at_ + 1);
  }
  bool done() const { return at_ >= codes_.size(); }
  uint32_t peek() const { return done() ? 0 : codes_[at_]; }
  bool take(uint32_t code) {
    if (done() || codes_[at_] != code) return false;
    ++at_;
    return true;
  }
  uint32_t next(const char* missing) {
    if (done()) refuse(missing);
    return codes_[at_++];
  }

  PatternNode choice(int depth) {
    if (depth > kDeepestGroup) refuse("groups nested too deep");
    PatternNode node{.kind = PatternNode::Kind::Choice};
    do {
      node.parts.push_back(sequence(depth));
    } while (take('|'));
    if (node.parts.size() > 1) return node;
    PatternNode only = std::move(node.parts.front());
    return only;
  }

  PatternNode sequence(int depth) {
    PatternNode node{.kind = PatternNode::Kind::Sequence};
    while (!done() && peek() != '|' && peek() != ')') node.parts.push_back(repeated(depth));
    return node;
  }

  PatternNode repeated(int depth) {
    PatternNode node = atom(depth);
    const bool assertion = node.kind == PatternNode::Kind::Begin || node.kind == PatternNode::Kind::End;
    std::optional<std::pair<int64_t, int64_t>> times = quantifier();
    if (!times) return node;
    if (assertion) refuse("a quantifier after ^ or $");
    take('?');  // lazy or greedy: the same texts match
    if (quantifier()) refuse("two quantifiers in a row");
    PatternNode repeat{.kind = PatternNode::Kind::Repeat, .least = times->first, .most = times->second};
    repeat.parts.push_back(std::move(node));
    return repeat;
  }

  std::optional<std::pair<int64_t, int64_t>> quantifier() {
    if (take('*')) return {{0, -1}};
    if (take('+')) return {{1, -1}};
    if (take('?')) return {{0, 1}};
    if (peek() != '{' || done()) return {};
    const size_t begin = at_++;
    const std::optional<int64_t> least = number();
    std::optional<int64_t> most = least;
    if (take(',')) most = peek() == '}' ? std::optional<int64_t>(-1) : number();
    if (!least || !most || !take('}')) {
      at_ = begin;
      refuse("a '{' that is no repetition; write \\{");
    }
    if (*most >= 0 && *most < *least) refuse("a repetition whose limits are the wrong way round");
    return {{*least, *most}};
  }

  std::optional<int64_t> number() {
    if (done() || !is_digit(peek())) return {};
    int64_t value = 0;
    while (!done() && is_digit(peek())) {
      value = value * 10 + (next("") - '0');
      if (value > kMostRegexRepeats) refuse("more than 10000 repetitions");
    }
    return value;
  }
  static bool is_digit(uint32_t code) { return code >= '0' && code <= '9'; }

  PatternNode atom(int depth) {
    const uint32_t code = next("no end");
    switch (code) {
      case '^':
        return {.kind = PatternNode::Kind::Begin};
      case '$':
        return {.kind = PatternNode::Kind::End};
      case '.':
        return of(kLineEnds.inverse());
      case '[':
        return of(bracket());
      case '(':
        return group(depth);
      case '\\':
        return of(escape(false));
      case '*':
      case '+':
      case '?':
      case '{':
        --at_;
        refuse("a quantifier after nothing");
      default:
        return of({{code, code}});
    }
  }

  static PatternNode of(CharSet characters) {
    PatternNode node{.kind = PatternNode::Kind::Characters};
    node.characters = std::move(characters);
    return node;
  }

  PatternNode group(int depth) {
    if (take('?')) {
      take('P');  // Python's way to name a group
      if (take('<')) {
        if (peek() == '=' || peek() == '!') refuse("a lookbehind, which no grammar can say,");
        while (next("a group without end") != '>') {
        }
      } else if (!take(':')) {
        refuse("a lookahead or a flag, which no grammar can say,");
      }
    }
    PatternNode inside = choice(depth + 1);
    if (!take(')')) refuse("a group without end");
    return inside;
  }

  CharSet bracket() {
    const bool negated = take('^');
    CharSet set;
    while (!take(']')) {
      const CharSet first = bracket_part();
      if (peek() == '-' && at_ + 1 < codes_.size() && codes_[at_ + 1] != ']') {
        ++at_;
        const CharSet last = bracket_part();
        if (!is_single(first) || !is_single(last)) refuse("a range between classes");
        if (first.ranges()[0].first > last.ranges()[0].first) refuse("a range that is the wrong way round");
        set.add(first.ranges()[0].first, last.ranges()[0].first);
      } else {
        set.add(first);
      }
    }
    if (negated) set = set.inverse();
    if (set.empty()) refuse("a class without characters");
    return set;
  }
  CharSet bracket_part() {
    const uint32_t code = next("a '[' without end");
    if (code == '\\') return escape(true);
    return {{code, code}};
  }
  static bool is_single(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
  }

  CharSet escape(bool in_class) {
    const uint32_t code = next("a '\\' at its end");
    switch (code) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.inverse();
      case 'w':
        return kWord;
      case 'W':
        return kWord.inverse();
      case 's':
        return kSpace;
      case 'S':
        return kSpace.inverse();
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'x':
        return one(hex(2));
      case 'u':
        return one(take('{') ? braced_hex() : hex(4));
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        break;
      default:
        break;
    }
    const bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || is_digit(code);
    if (letter && !(code == '0' && !is_digit(peek()))) refuse("an escape that no grammar can say");
    return one(letter ? 0 : code);
  }
  CharSet one(uint32_t code) const {
    if (code > CharSet::kLast || (code >= 0xD800 && code <= 0xDFFF)) refuse("half a character");
    return {{code, code}};
  }
  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) value = value * 16 + hex_digit(next("an escape without end"));
    return value;
  }
  uint32_t braced_hex() {
    uint32_t value = 0;
    do {
      value = value * 16 + hex_digit(next("an escape without end"));
      if (value > CharSet::kLast) refuse("a character that does not exist");
    } while (!take('}'));
    return value;
  }
  uint32_t hex_digit(uint32_t code) const {
    if (is_digit(code)) return code - '0';
    if (code >= 'a' && code <= 'f') return code - 'a' + 10;
    if (code >= 'A' && code <= 'F') return code - 'A' + 10;
    refuse("an escape that is not hexadecimal");
  }

  std::vector<uint32_t> codes_;
  size_t at_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view regex) {
  if (regex.size() > kLongestRegex)
    fail(ErrorKind::Usage, "the regular expression is longer than {} bytes", kLongestRegex);
  return Parser(regex).parse();
}

}  // namespace millrace
