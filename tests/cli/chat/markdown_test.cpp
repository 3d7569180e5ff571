// Markdown on a terminal: what is shown does not depend on how the stream is cut.
#include "cli/chat/markdown.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::string shown(std::string_view text, size_t piece) {
  Markdown markdown;
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += markdown.push(text.substr(at, piece));
  return out + markdown.finish();
}

// The text with escapes spelled out.
std::string shown(std::string_view text) {
  const std::string whole = shown(text, text.size() + 1);
  for (const size_t piece : {1, 2, 3, 7}) EXPECT_EQ(shown(text, piece), whole) << text;
  std::string readable;
  for (const char c : whole) readable += c == '\033' ? std::string("^") : std::string(1, c);
  return readable;
}

TEST(MarkdownTest, Spans) {
  EXPECT_EQ(shown("a **b** c"), "a ^[1mb^[0m c");
  EXPECT_EQ(shown("*b* _c_"), "^[3mb^[0m ^[3mc^[0m");
  EXPECT_EQ(shown("`x*y*z`"), "^[36mx*y*z^[0m");
  EXPECT_EQ(shown("**a `b` c**"), "^[1ma ^[36mb^[0m^[1m c^[0m");
  EXPECT_EQ(shown("***both***."), "^[1m^[3mboth^[0m.");
}

TEST(MarkdownTest, MarkersWithoutPartnerStay) {
  for (const char* text : {"2 * 3 * 4", "snake_case_name", "f(*args, **kwargs)", "a * b*", "an `open span", "5*3", "**",
                           "héllo 日本語 *", "a_b_", "x ** y"}) {
    EXPECT_EQ(shown(text), text);
  }
  const std::string long_open = "*" + std::string(1000, 'x') + " y";
  EXPECT_EQ(shown(long_open), long_open);
}

TEST(MarkdownTest, Blocks) {
  EXPECT_EQ(shown("# Title\ntext"), "^[1mTitle^[0m\ntext");
  EXPECT_EQ(shown("## A *b*\n"), "^[1mA ^[3mb^[0m^[1m^[0m\n");
  EXPECT_EQ(shown("- one\n  * two\n+ three"), "• one\n  • two\n• three");
  EXPECT_EQ(shown("> said\n"), "^[2m│ ^[0msaid\n");
  EXPECT_EQ(shown("---\n"), "^[2m────────^[0m\n");
  EXPECT_EQ(shown("-5 and #tag"), "-5 and #tag");
  EXPECT_EQ(shown("1. first\n\n2. second"), "1. first\n\n2. second");
}

TEST(MarkdownTest, FencedCodeIsLiteral) {
  EXPECT_EQ(shown("```py\na = b ** c\n# no title\n```\n**x**"),
            "^[2m```py^[0m^[36m\na = b ** c\n# no title\n^[2m```^[0m\n^[1mx^[0m");
  EXPECT_EQ(shown("```\nopen"), "^[2m```^[0m^[36m\nopen^[0m");
}

TEST(MarkdownTest, ControlCharactersDoNotReachTheTerminal) { EXPECT_EQ(shown("a\033[2Jb\rc\x07"), "a[2Jbc"); }

}  // namespace
}  // namespace millrace
