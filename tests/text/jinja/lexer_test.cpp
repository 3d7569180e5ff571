#include "text/jinja/parse/lexer.h"

#include <gtest/gtest.h>

#include <string>

#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

// Tokens as "kind:text" with their lines.
std::string sketch(std::string_view source) {
  std::string out;
  for (const Token& token : tokenize(source)) {
    constexpr const char* kKinds[] = {"data", "{%", "%}", "{{", "}}", "name", "str", "int", "float", "op", "end"};
    out += std::to_string(token.line) + kKinds[static_cast<int>(token.type)];
    if (!token.text.empty()) out += "(" + token.text + ")";
    out += " ";
  }
  return out;
}

TEST(Lexer, TokensCarryTheirLines) {
  EXPECT_EQ(sketch("a\n{{ b\n + 1.5 }}"), "1data(a\n) 2{{ 2name(b) 3op(+) 3float(1.5) 3}} 3end ");
}

TEST(Lexer, TrimsAsHuggingFaceSetsItUp) {
  EXPECT_EQ(sketch("  {% x %}\n  y\n"), "1{% 1name(x) 1%} 2data(  y) 2end ");
  EXPECT_EQ(sketch("a {%- x -%} \n b"), "1data(a) 1{% 1name(x) 1%} 2data(b) 2end ");
  EXPECT_EQ(sketch("  {{ x }}\n"), "1data(  ) 1{{ 1name(x) 1}} 1end ");
  EXPECT_EQ(sketch("  {%+ x +%}\ny"), "1data(  ) 1{% 1name(x) 1%} 1data(\ny) 2end ");
}

TEST(Lexer, BracesInsideOfATagDoNotEndIt) {
  EXPECT_EQ(sketch("{{ {'a': {}} }}"), "1{{ 1op({) 1str(a) 1op(:) 1op({) 1op(}) 1op(}) 1}} 1end ");
}

TEST(Lexer, NumbersAfterADotAreIntegers) {
  EXPECT_EQ(sketch("{{ a.1.2 }}"), "1{{ 1name(a) 1op(.) 1int(1) 1op(.) 1int(2) 1}} 1end ");
}

TEST(Lexer, FailuresNameTheirLine) {
  for (const char* source : {"\n{{ 'x }}", "\n{# x", "\n{% raw %}x", "\n{{ ) }}", "\n{{ (] }}", "\n{{ ? }}",
                             "\n{{ 999999999999999999999999999999999999999999 }}"}) {
    try {
      tokenize(source);
      ADD_FAILURE() << source;
    } catch (const TemplateError& error) {
      EXPECT_EQ(error.line(), 2) << source;
    }
  }
}

}  // namespace
}  // namespace millrace::jinja
