#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "grammar/regex_ast.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

constexpr size_t kLongestRegex = 16 << 10;
constexpr int kDeepestGroup = 64;
constexpr int64_t kMostRegexRepeats = 10000;

// What a class has for all engines (JavaScript's are ASCII, Python's are not) and what it may have for one of them.
struct ClassReadings {
  CodeSet for_all, for_any;
  CodeSet read(Reading reading, bool inverse) const {
    const bool all = reading == Reading::ForAll;
    return inverse ? (all ? for_any : for_all).complement() : all ? for_all : for_any;
  }
};

// Letters and digits of any script are somewhere in these; marks and symbols, and ideographs for digits, are not.
constexpr CodeRange kPunctuation[] = {{0xA1, 0xA9},      {0xAB, 0xB1},     {0x2010, 0x2027}, {0x2030, 0x203E},
                                      {0x2041, 0x2053},  {0x2055, 0x205E}, {0x20A0, 0x20C0}, {0x2190, 0x245F},
                                      {0x2500, 0x2775},  {0x2794, 0x2BFF}, {0x3001, 0x3003}, {0x3008, 0x3020},
                                      {0x1F300, 0x1FAFF}};

CodeSet beyond_ascii_but(std::initializer_list<CodeRange> ranges) {
  CodeSet none;
  for (const CodeRange& range : kPunctuation) none.add(range.first, range.last);
  for (const CodeRange& range : ranges) none.add(range.first, range.last);
  return CodeSet{{0x80, CodeSet::kLast}}.without(none);
}

CodeSet with(CodeSet set, const CodeSet& more) {
  set.add(more);
  return set;
}

const CodeSet kAsciiWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeSet kAsciiSpace{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}};
const ClassReadings kDigit{{{'0', '9'}},
                           with({{'0', '9'}}, beyond_ascii_but({{0x80, 0x65F}, {0x3041, 0x9FFF}, {0xAC00, 0xD7A3}}))};
const ClassReadings kWord{kAsciiWord, with(kAsciiWord, beyond_ascii_but({{0x80, 0xA0}}))};
const ClassReadings kSpace{kAsciiSpace, with(kAsciiSpace, {{0x1C, 0x1F},
                                                           {0x85, 0x85},
                                                           {0x1680, 0x1680},
                                                           {0x180E, 0x180E},
                                                           {0x2000, 0x200B},
                                                           {0x2028, 0x2029},
                                                           {0x202F, 0x202F},
                                                           {0x205F, 0x205F},
                                                           {0x3000, 0x3000},
                                                           {0xFEFF, 0xFEFF}})};
const ClassReadings kLineEnd{{{'\n', '\n'}}, {{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}};

class Parser {
 public:
  Parser(std::string_view regex, Reading reading) : codes_(code_points(regex)), reading_(reading) {}

  PatternNode parse() {
    if (opening("(?i)")) any_case_ = true;
    PatternNode node = choice(0);
    if (at_ < codes_.size()) refuse("a ')' that closes nothing");
    return node;
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorKind::Usage, "the regular expression has {} at character {}", what, at_ + 1);
  }
  // Takes a text that stands here.
  bool opening(std::string_view text) {
    if (codes_.size() - at_ < text.size()) return false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (codes_[at_ + i] != static_cast<uint32_t>(text[i])) return false;
    }
    at_ += text.size();
    return true;
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
    const bool assertion = node.kind >= PatternNode::Kind::Begin;
    std::optional<std::pair<int64_t, int64_t>> times = quantifier();
    if (!times) return node;
    if (assertion) refuse("a quantifier after ^, $, \\b or a lookahead");
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
    if (!least && most && peek() == '}')
      refuse("a repetition without its first number, which engines read differently,");
    if (!least || !most || !take('}')) {  // a brace as it is
      at_ = begin;
      return {};
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
        return of(kLineEnd.read(reading_, true));
      case '[':
        return of(bracket());
      case '(':
        return group(depth);
      case '\\':
        if (take('b')) return {.kind = PatternNode::Kind::Boundary};
        // As Python and Perl say ^ and $. JavaScript would read letters, which nobody means by it.
        if (take('A')) return {.kind = PatternNode::Kind::Begin};
        if (take('Z') || take('z')) return {.kind = PatternNode::Kind::End};
        return of(escape(false, reading_));
      case '{':
        --at_;
        if (quantifier()) refuse("a quantifier after nothing");
        ++at_;
        return of({{'{', '{'}});
      case '*':
      case '+':
      case '?':
        --at_;
        refuse("a quantifier after nothing");
      default:
        return of(in_any_case({{code, code}}));
    }
  }

  static PatternNode of(CodeSet characters) {
    PatternNode node{.kind = PatternNode::Kind::Characters};
    node.characters = std::move(characters);
    return node;
  }

  PatternNode group(int depth) {
    if (take('?')) {
      if (take('=')) return ahead(PatternNode::Kind::Ahead, depth);
      if (take('!')) return ahead(PatternNode::Kind::NotAhead, depth);
      if (opening("<=")) return ahead(PatternNode::Kind::Behind, depth);
      if (opening("<!")) return ahead(PatternNode::Kind::NotBehind, depth);
      if (opening("i:")) return any_case_group(depth);
      take('P');  // Python's way to name a group
      if (take('<')) {
        while (next("a group without end") != '>') {
        }
      } else if (!take(':')) {
        refuse("a flag, which is understood as (?i) at the begin or of a group only,");
      }
    }
    PatternNode inside = choice(depth + 1);
    if (!take(')')) refuse("a group without end");
    return inside;
  }

  PatternNode any_case_group(int depth) {
    const bool outside = std::exchange(any_case_, true);
    PatternNode inside = choice(depth + 1);
    any_case_ = outside;
    if (!take(')')) refuse("a group without end");
    return inside;
  }

  static Reading other(Reading reading) { return reading == Reading::ForAll ? Reading::ForAny : Reading::ForAll; }

  PatternNode ahead(PatternNode::Kind kind, int depth) {
    const Reading outside = reading_;
    const bool inverse = kind == PatternNode::Kind::NotAhead || kind == PatternNode::Kind::NotBehind;
    if (inverse) reading_ = other(reading_);
    PatternNode node{.kind = kind};
    node.parts.push_back(choice(depth + 1));
    reading_ = outside;
    if (!take(')')) refuse("a group without end");
    return node;
  }

  // Of ASCII letters. Engines that look beyond find U+017F and U+212A in s and k.
  CodeSet in_any_case(CodeSet set) const { return fold(std::move(set), reading_); }
  CodeSet fold(CodeSet set, Reading reading) const {
    if (!any_case_) return set;
    const bool beyond = !set.without({{0, 0x7F}}).empty();
    if (beyond && reading == Reading::ForAny) refuse("letters beyond ASCII beside (?i), where they must not match,");
    for (uint32_t c = 'a'; c <= 'z'; ++c) {
      const uint32_t upper = c - 'a' + 'A';
      if (!set.contains(c) && !set.contains(upper)) continue;
      set.add(c, c);
      set.add(upper, upper);
      if (reading == Reading::ForAny && c == 's') set.add(0x17F, 0x17F);
      if (reading == Reading::ForAny && c == 'k') set.add(0x212A, 0x212A);
    }
    return set;
  }

  CodeSet bracket() {
    const bool negated = take('^');
    const Reading inside = negated ? other(reading_) : reading_;
    CodeSet set;
    while (!take(']')) {
      const CodeSet first = bracket_part(inside);
      if (peek() == '-' && at_ + 1 < codes_.size() && codes_[at_ + 1] != ']') {
        ++at_;
        const CodeSet last = bracket_part(inside);
        if (!is_single(first) || !is_single(last)) refuse("a range between classes");
        if (first.ranges()[0].first > last.ranges()[0].first) refuse("a range that is the wrong way round");
        set.add(first.ranges()[0].first, last.ranges()[0].first);
      } else {
        set.add(first);
      }
    }
    set = fold(std::move(set), inside);
    if (negated) set = set.complement();
    if (set.empty()) refuse("a class without characters");
    return set;
  }
  CodeSet bracket_part(Reading reading) {
    const uint32_t code = next("a '[' without end");
    if (code == '\\') return escape(true, reading);
    return {{code, code}};
  }
  static bool is_single(const CodeSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  CodeSet escape(bool in_class, Reading reading) {
    const uint32_t code = next("a '\\' at its end");
    switch (code) {
      case 'd':
      case 'D':
        return kDigit.read(reading, code == 'D');
      case 'w':
      case 'W':
        return kWord.read(reading, code == 'W');
      case 's':
      case 'S':
        return kSpace.read(reading, code == 'S');
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
      case 'p':
      case 'P':
        return property(reading, code == 'P');
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
  // \p{L}, \p{Script=Greek}, \pL. What is not assigned here may be in the Unicode of another engine.
  CodeSet property(Reading reading, bool inverse) {
    std::string name;
    if (take('{')) {
      while (!take('}')) name += to_utf8(next("a property without end"));
    } else {
      name = to_utf8(next("a property without a name"));
    }
    if (const size_t equals = name.find('='); equals != std::string::npos) name = name.substr(equals + 1);
    const std::optional<CodeSet> found = unicode_property(name);
    if (!found) refuse("a Unicode property that is not known");
    const CodeSet set = characters_of(*found);
    return ClassReadings{set, with(set, characters_of(*unicode_property("Cn")))}.read(reading, inverse);
  }

  static CodeSet characters_of(const CodeSet& codes) {
    CodeSet set;
    for (const CodeRange& range : codes.ranges()) set.add(range.first, range.last);
    return set.without({{0xD800, 0xDFFF}});
  }

  CodeSet one(uint32_t code) const {
    if (code > CodeSet::kLast || (code >= 0xD800 && code <= 0xDFFF)) refuse("half a character");
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
      if (value > CodeSet::kLast) refuse("a character that does not exist");
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
  Reading reading_;
  bool any_case_ = false;
};

}  // namespace

const CodeSet& word_characters() { return kWord.for_all; }
const CodeSet& other_characters() {
  static const CodeSet kOthers = kWord.for_any.complement();
  return kOthers;
}

PatternNode parse_pattern(std::string_view regex, Reading reading) {
  if (regex.size() > kLongestRegex)
    fail(ErrorKind::Usage, "the regular expression is longer than {} bytes", kLongestRegex);
  return Parser(regex, reading).parse();
}

}  // namespace millrace
