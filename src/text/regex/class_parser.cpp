#include "text/regex/class_parser.h"

#include <string>

#include "text/unicode/properties.h"

namespace millrace {
namespace {

constexpr int kDeepestClass = 60;

CodeSet negated_if(bool negate, CodeSet set) { return negate ? set.complement() : set; }

CodeSet property_escape(PatternReader& in, bool negate) {
  if (in.accept('^')) negate = !negate;
  std::string name;
  while (!in.at_end() && in.peek() != '}') append_utf8(name, in.take());
  if (!in.accept('}')) in.refuse("has a \\p{ without }");
  auto set = unicode_property(name);
  if (!set) in.refuse(fmt::format("asks for the unknown property '{}'", name));
  return negated_if(negate, std::move(*set));
}

CodeSet posix_bracket(PatternReader& in) {
  const bool negate = in.accept('^');
  std::string name;
  while (!in.at_end() && in.peek() != ':') append_utf8(name, in.take());
  if (!in.starts_with(":]")) in.refuse("has a [: without :]");
  in.skip(2);
  auto set = name == "punct" ? posix_punctuation_set() : unicode_property(name);
  if (!set) in.refuse(fmt::format("asks for the unknown class '{}'", name));
  return negated_if(negate, std::move(*set));
}

char32_t checked(const PatternReader& in, std::optional<char32_t> code) {
  if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
    in.refuse("has an escape that names no character");
  }
  return *code;
}

char32_t hexadecimal_escape(PatternReader& in) {
  if (!in.accept('{')) return checked(in, in.digits(16, 2));
  const char32_t code = checked(in, in.digits(16, 6));
  if (!in.accept('}')) in.refuse("has a \\x{ without }");
  return code;
}

CodeSet class_body(PatternReader& in, bool ignore_case, int depth);

// One member of a class: a set, or a character that may begin a range.
void class_member(PatternReader& in, bool ignore_case, int depth, CodeSet& set) {
  char32_t first;
  if (in.starts_with("[:")) {
    in.skip(2);
    return set.add(posix_bracket(in));
  }
  if (in.accept('[')) return set.add(class_body(in, ignore_case, depth + 1));
  if (in.accept('\\')) {
    if (const auto escaped = parse_set_escape(in, true)) return set.add(*escaped);
    first = in.accept('b') ? '\b' : parse_character_escape(in);
  } else {
    first = in.take();
  }
  const size_t after = in.position();
  if (!in.accept('-') || in.at_end() || in.peek() == ']' || in.peek() == '[' || in.starts_with("&&")) {
    in.rewind(after);
    return set.add(first, first);
  }
  char32_t last;
  if (in.accept('\\')) {
    if (parse_set_escape(in, true)) in.refuse("has a range that ends with a class");
    last = parse_character_escape(in);
  } else {
    last = in.take();
  }
  if (last < first) in.refuse("has a range that ends before it begins");
  set.add(first, last);
}

CodeSet class_body(PatternReader& in, bool ignore_case, int depth) {
  if (depth > kDeepestClass) in.refuse("is nested too deeply");
  const bool negate = in.accept('^');
  std::optional<CodeSet> common;  // of what stands left of the last &&
  CodeSet set;
  const auto intersect = [&] {
    if (ignore_case) set.fold_case();
    common = common ? common->intersection(set) : set;
    set = CodeSet();
  };
  for (bool first = true; first || !in.accept(']'); first = false) {
    if (in.at_end()) in.refuse("has an unmatched [");
    if (in.starts_with("&&")) {
      in.skip(2);
      intersect();
    } else {
      class_member(in, ignore_case, depth, set);
    }
  }
  intersect();
  return negated_if(negate, std::move(*common));
}

}  // namespace

CodeSet parse_class(PatternReader& in, bool ignore_case) { return class_body(in, ignore_case, 0); }

std::optional<CodeSet> parse_set_escape(PatternReader& in, bool in_class) {
  const auto set_of = [&](CodeSet set, bool negate) {
    in.take();
    return negated_if(negate, std::move(set));
  };
  const char32_t c = in.peek();
  switch (c) {
    case 'd':
    case 'D':
      return set_of(category_set({Category::Nd}), c == 'D');
    case 's':
    case 'S':
      return set_of(white_space_set(), c == 'S');
    case 'w':
    case 'W':
      return set_of(in_class ? word_set() : lone_word_set(), c == 'W');
    case 'h':
    case 'H':
      return set_of(*unicode_property("xdigit"), c == 'H');
    case 'N':
      return set_of({{'\n', '\n'}}, true);
    case 'O':
      return set_of({{0, 0x10FFFF}}, false);
    case 'p':
    case 'P':
      if (!in.starts_with(c == 'p' ? "p{" : "P{")) return std::nullopt;
      in.skip(2);
      return property_escape(in, c == 'P');
    default:
      return std::nullopt;
  }
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
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'x':
      return hexadecimal_escape(in);
    case 'u':
      return checked(in, in.digits(16, 4));
    case '0':
      return in.digits(8, 2).value_or(0);
    case 'c':
    case 'C':
    case 'M':
      in.refuse("uses a control escape, which is not supported");
    default:
      if (c >= '1' && c <= '9') in.refuse("uses a backreference, which is not supported");
      return c;
  }
}

}  // namespace millrace
