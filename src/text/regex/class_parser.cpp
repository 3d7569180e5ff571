#include "text/regex/class_parser.h"

#include <string>

#include "text/unicode/properties.h"

namespace millrace {
namespace {

constexpr int kDeepestClass = 60;

// \p{name}, \P{name}, in Oniguruma's \p{^name}, in Ecma's \pL.
CodeSet property_escape(PatternReader& in, const ClassMeaning& meaning) {
  bool inverse = in.take() == 'P';
  std::string name;
  if (in.accept('{')) {
    if (!in.is_ecma() && in.accept('^')) inverse = !inverse;
    while (!in.at_end() && in.peek() != '}') append_utf8(name, in.take());
    if (!in.accept('}')) in.refuse("has a \\p{ without }");
  } else {
    append_utf8(name, in.take());
  }
  auto set = meaning.property(name, inverse);
  if (!set) in.refuse(fmt::format("asks for the unknown property '{}'", name));
  return std::move(*set);
}

CodeSet posix_bracket(PatternReader& in) {
  const bool negate = in.accept('^');
  std::string name;
  while (!in.at_end() && in.peek() != ':') append_utf8(name, in.take());
  if (!in.accept(":]")) in.refuse("has a [: without :]");
  auto set = name == "punct" ? posix_punctuation_set() : unicode_property(name);
  if (!set) in.refuse(fmt::format("asks for the unknown class '{}'", name));
  return negate ? set->complement() : std::move(*set);
}

char32_t checked(const PatternReader& in, std::optional<char32_t> code) {
  if (!code || *code > CodeSet::kLast || (*code >= 0xD800 && *code < 0xE000)) {
    in.refuse("has an escape that names no character");
  }
  return *code;
}

char32_t braced_escape(PatternReader& in) {
  const char32_t code = checked(in, in.digits(16, 1, 6));
  if (!in.accept('}')) in.refuse("has an escape with { and without }");
  return code;
}

// The escapes that the dialects do not share.
char32_t oniguruma_escape(PatternReader& in, char32_t c) {
  switch (c) {
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'x':
      return in.accept('{') ? braced_escape(in) : checked(in, in.digits(16, 1, 2));
    case 'u':
      return checked(in, in.digits(16, 1, 4));
    case '0':
      return in.digits(8, 1, 2).value_or(0);
    case 'c':
    case 'C':
    case 'M':
      in.refuse("uses a control escape, which is not supported");
    default:
      if (c >= '1' && c <= '9') in.refuse("uses a backreference, which is not supported");
      return c;
  }
}

char32_t ecma_escape(PatternReader& in, char32_t c) {
  const auto is_digit = [](char32_t one) { return one >= '0' && one <= '9'; };
  if (c == 'x') return checked(in, in.digits(16, 2, 2));
  if (c == 'u') return in.accept('{') ? braced_escape(in) : checked(in, in.digits(16, 4, 4));
  if (c == '0' && !is_digit(in.peek())) return 0;
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (letter || is_digit(c)) in.refuse("has an escape that is not supported");
  return c;
}

CodeSet class_body(PatternReader& in, const ClassMeaning& meaning, int depth);

char32_t class_character(PatternReader& in) {
  if (!in.accept('\\')) return in.take();
  return in.accept('b') ? '\b' : parse_character_escape(in);
}

// Whether a range goes on behind its first character; its '-' is consumed then.
bool accept_range(PatternReader& in) {
  const size_t before = in.position();
  if (!in.accept('-')) return false;
  const bool nested = !in.is_ecma() && (in.peek() == '[' || in.starts_with("&&"));
  if (!in.at_end() && in.peek() != ']' && !nested) return true;
  in.rewind(before);
  return false;
}

// One member of a class: a set, or a character that may begin a range.
void class_member(PatternReader& in, const ClassMeaning& meaning, int depth, CodeSet& set) {
  if (!in.is_ecma()) {
    if (in.accept("[:")) return set.add(posix_bracket(in));
    if (in.accept('[')) return set.add(class_body(in, meaning, depth + 1));
  }
  const size_t before = in.position();
  if (in.accept('\\')) {
    if (const auto escaped = parse_set_escape(in, meaning, true)) {
      if (in.is_ecma() && accept_range(in)) in.refuse("has a range that begins with a class");
      return set.add(*escaped);
    }
    in.rewind(before);
  }
  const char32_t first = class_character(in);
  if (!accept_range(in)) return set.add(first, first);
  const size_t behind = in.position();
  if (in.accept('\\')) {
    if (parse_set_escape(in, meaning, true)) in.refuse("has a range that ends with a class");
    in.rewind(behind);
  }
  const char32_t last = class_character(in);
  if (last < first) in.refuse("has a range that ends before it begins");
  set.add(first, last);
}

CodeSet class_body(PatternReader& in, const ClassMeaning& outside, int depth) {
  if (depth > kDeepestClass) in.refuse("is nested too deeply");
  const bool negate = in.accept('^');
  const ClassMeaning meaning = negate ? outside.negated() : outside;
  std::optional<CodeSet> common;  // of the operands of && so far
  CodeSet set;
  const auto intersect = [&] {
    if (!meaning.fold(set)) in.refuse("has letters beyond ASCII beside (?i), where they must not match,");
    common = common ? common->intersection(set) : set;
    set = CodeSet();
  };
  // Oniguruma reads a ] directly behind the bracket as a member.
  for (bool first = !in.is_ecma(); first || !in.accept(']'); first = false) {
    if (in.at_end()) in.refuse("has an unmatched [");
    if (!in.is_ecma() && in.accept("&&")) {
      intersect();
    } else {
      class_member(in, meaning, depth, set);
    }
  }
  intersect();
  CodeSet members = negate ? common->complement() : std::move(*common);
  if (in.is_ecma() && members.empty()) in.refuse("has a class without characters");
  return members;
}

}  // namespace

CodeSet parse_class(PatternReader& in, const ClassMeaning& meaning) { return class_body(in, meaning, 0); }

std::optional<CodeSet> parse_set_escape(PatternReader& in, const ClassMeaning& meaning, bool in_class) {
  const char32_t c = in.peek();
  const bool braced = in.starts_with("p{") || in.starts_with("P{");
  if (braced || (in.is_ecma() && (c == 'p' || c == 'P'))) return property_escape(in, meaning);
  auto set = meaning.escape(c, in_class);
  if (set) in.take();
  return set;
}

char32_t parse_character_escape(PatternReader& in) {
  const char32_t c = in.take();
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    default:
      return in.is_ecma() ? ecma_escape(in, c) : oniguruma_escape(in, c);
  }
}

}  // namespace millrace
