#include "text/regex/class_meaning.h"

#include "text/unicode/properties.h"

namespace millrace {
namespace {

// The characters of a class in all engines (JavaScript's are ASCII, Python's are not), and those in any of them.
struct EcmaClass {
  CodeSet for_all, for_any;
  CodeSet read(RegexReading reading, bool inverse) const {
    const bool all = reading == RegexReading::ForAll;
    return inverse ? (all ? for_any : for_all).complement() : all ? for_all : for_any;
  }
};

// No engine takes these for letters or digits.
constexpr CodeRange kPunctuation[] = {{0xA1, 0xA9},      {0xAB, 0xB1},     {0x2010, 0x2027}, {0x2030, 0x203E},
                                      {0x2041, 0x2053},  {0x2055, 0x205E}, {0x20A0, 0x20C0}, {0x2190, 0x245F},
                                      {0x2500, 0x2775},  {0x2794, 0x2BFF}, {0x3001, 0x3003}, {0x3008, 0x3020},
                                      {0x1F300, 0x1FAFF}};

CodeSet beyond_ascii_without(const CodeSet& excluded) {
  return CodeSet{{0x80, CodeSet::kLast}}.without(CodeSet(kPunctuation)).without(excluded);
}

CodeSet with(CodeSet set, const CodeSet& more) {
  set.add(more);
  return set;
}

const CodeSet kAsciiWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeSet kAsciiSpace{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}};
const EcmaClass kEcmaDigit{
    {{'0', '9'}}, with({{'0', '9'}}, beyond_ascii_without({{0x80, 0x65F}, {0x3041, 0x9FFF}, {0xAC00, 0xD7A3}}))};
const EcmaClass kEcmaWord{kAsciiWord, with(kAsciiWord, beyond_ascii_without({{0x80, 0xA0}}))};
const EcmaClass kEcmaSpace{kAsciiSpace, with(kAsciiSpace, {{0x1C, 0x1F},
                                                           {0x85, 0x85},
                                                           {0x1680, 0x1680},
                                                           {0x180E, 0x180E},
                                                           {0x2000, 0x200B},
                                                           {0x2028, 0x2029},
                                                           {0x202F, 0x202F},
                                                           {0x205F, 0x205F},
                                                           {0x3000, 0x3000},
                                                           {0xFEFF, 0xFEFF}})};
const EcmaClass kEcmaLineEnd{{{'\n', '\n'}}, {{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}};

CodeSet negated_if(bool negate, CodeSet set) { return negate ? set.complement() : set; }

std::optional<CodeSet> oniguruma_class(char32_t letter, bool in_class) {
  switch (letter) {
    case 'd':
    case 'D':
      return negated_if(letter == 'D', category_set({Category::Nd}));
    case 's':
    case 'S':
      return negated_if(letter == 'S', white_space_set());
    case 'w':
    case 'W':
      return negated_if(letter == 'W', in_class ? word_set() : lone_word_set());
    case 'h':
    case 'H':
      return negated_if(letter == 'H', *unicode_property("xdigit"));
    case 'N':
      return CodeSet{{'\n', '\n'}}.complement();
    case 'O':
      return CodeSet{{0, CodeSet::kLast}};
    default:
      return std::nullopt;
  }
}

}  // namespace

ClassMeaning ClassMeaning::negated() const {
  ClassMeaning inside = *this;
  inside.reading = reading == RegexReading::ForAll ? RegexReading::ForAny : RegexReading::ForAll;
  return inside;
}

std::optional<CodeSet> ClassMeaning::escape(char32_t letter, bool in_class) const {
  if (dialect == RegexDialect::Oniguruma) return oniguruma_class(letter, in_class);
  switch (letter) {
    case 'd':
    case 'D':
      return kEcmaDigit.read(reading, letter == 'D');
    case 'w':
    case 'W':
      return kEcmaWord.read(reading, letter == 'W');
    case 's':
    case 'S':
      return kEcmaSpace.read(reading, letter == 'S');
    default:
      return std::nullopt;
  }
}

std::optional<CodeSet> ClassMeaning::property(std::string_view name, bool inverse) const {
  if (dialect == RegexDialect::Oniguruma) {
    std::optional<CodeSet> set = unicode_property(name);
    return set ? negated_if(inverse, std::move(*set)) : std::optional<CodeSet>();
  }
  if (const size_t equals = name.find('='); equals != std::string_view::npos) name.remove_prefix(equals + 1);
  const std::optional<CodeSet> found = unicode_property(name);
  if (!found) return std::nullopt;
  // A character that is unassigned here may have the property in a newer Unicode of another engine.
  const CodeSet set = found->without({{0xD800, 0xDFFF}});
  return EcmaClass{set, with(set, unicode_property("Cn")->without({{0xD800, 0xDFFF}}))}.read(reading, inverse);
}

CodeSet ClassMeaning::dot(bool with_line_ends) const {
  if (with_line_ends) return {{0, CodeSet::kLast}};
  return dialect == RegexDialect::Ecma ? kEcmaLineEnd.read(reading, true) : CodeSet{{'\n', '\n'}}.complement();
}

bool ClassMeaning::fold(CodeSet& set) const {
  if (!ignore_case) return true;
  if (dialect == RegexDialect::Oniguruma) {
    set.fold_case();
    return true;
  }
  const bool any = reading == RegexReading::ForAny;
  if (any && set.overlaps(0x80, CodeSet::kLast)) return false;
  // Folds ASCII letters only; engines that fold by Unicode find U+017F and U+212A in s and k.
  for (uint32_t c = 'a'; c <= 'z'; ++c) {
    const uint32_t upper = c - 'a' + 'A';
    if (!set.contains(c) && !set.contains(upper)) continue;
    set.add(c, c);
    set.add(upper, upper);
    if (any && c == 's') set.add(0x17F, 0x17F);
    if (any && c == 'k') set.add(0x212A, 0x212A);
  }
  return true;
}

const CodeSet& ecma_word_characters() { return kEcmaWord.for_all; }
const CodeSet& ecma_other_characters() {
  static const CodeSet kOthers = kEcmaWord.for_any.complement();
  return kOthers;
}

}  // namespace millrace
