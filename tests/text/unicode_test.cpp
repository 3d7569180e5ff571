#include <gtest/gtest.h>

#include "text/unicode/code_set.h"
#include "text/unicode/normal_form.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

TEST(Utf8, EveryErrorBecomesOneReplacement) {
  const auto repaired = [](std::string_view text) {
    std::string marked;
    const std::string fixed = repair_utf8(text);
    for (size_t i = 0; i < fixed.size(); i += utf8_length(fixed[i])) {
      const auto c = std::string_view(fixed).substr(i, utf8_length(fixed[i]));
      marked += c == kReplacementCharacter ? "?" : c;
    }
    return marked;
  };
  EXPECT_EQ(repaired("a\xc3"), "a?");
  EXPECT_EQ(repaired("\xe2\x82"), "?");  // one character that ended too early
  EXPECT_EQ(repaired("\xe2\x82\xac"), "€");
  EXPECT_EQ(repaired("\xf0\x9f\x98x"), "?x");
  EXPECT_EQ(repaired("\xed\xa0\x80"), "???");  // a surrogate is no beginning of anything
  EXPECT_EQ(repaired("\xc0\xaf"), "??");       // overlong
  EXPECT_EQ(repaired("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(repaired("\xff\xfe"), "??");
}

TEST(Utf8, RoundTripsEveryCharacter) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_TRUE(is_valid_utf8(text)) << std::hex << static_cast<uint32_t>(code);
    const Character c = decode_utf8(text.data());
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
    ASSERT_EQ(previous_utf8(text, text.size()), 0u);
  }
}

TEST(CodeSet, TableAndRangesAgree) {
  for (const char* name : {"L", "Nd", "P", "Han", "Alphabetic", "White_Space", "Any", "Cn"}) {
    const CodeSet set = unicode_property(name).value();
    const CodeTable table(set);
    const CodeSet others = set.complement();
    for (uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 37) {
      ASSERT_EQ(set.contains(code), table.contains(code)) << name << " " << std::hex << code;
      const bool surrogate = code >= 0xD800 && code < 0xE000;
      ASSERT_EQ(others.contains(code), !surrogate && !set.contains(code)) << name << " " << std::hex << code;
    }
  }
}

TEST(CodeSet, FoldsCaseOverAllThatDiffersInCaseOnly) {
  CodeSet set{{'s', 's'}};
  set.fold_case();
  EXPECT_TRUE(set.contains('S') && set.contains(0x17F) && !set.contains('t'));
}

TEST(NormalForm, SortsLongRunsOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) {
    text += i % 2 ? "\u0301" : "\u0316";  // classes 230 and 220: every second is out of place
  }
  const std::string sorted = normalized(text, UnicodeForm::Nfd);
  EXPECT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.substr(0, 5), "a\u0316\u0316");
  EXPECT_EQ(sorted.substr(sorted.size() - 2), "\u0301");
}

}  // namespace
}  // namespace millrace
