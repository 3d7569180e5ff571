#include "text/jinja/value/unicode.h"

#include <gtest/gtest.h>

namespace millrace::jinja {
namespace {

TEST(Unicode, ValidityIsStrict) {
  for (const char* good : {"", "a", "é", "\xef\xbf\xbd", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_valid_utf8(good));
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98", "a\xff"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
}

TEST(Unicode, CodePointsAreCountedAndFound) {
  const std::string text = "aé😀z";
  EXPECT_EQ(count_code_points(text), 4u);
  EXPECT_EQ(code_point_offset(text, 2), 3u);
  EXPECT_EQ(code_point_offset(text, 9), text.size());
  size_t at = 3;
  EXPECT_EQ(next_code_point(text, at), U'😀');
  EXPECT_EQ(at, 7u);
  EXPECT_EQ(previous_code_point_start(text, 7), 3u);
}

TEST(Unicode, CaseMappingsAreFull) {
  EXPECT_EQ(to_upper("straße ŉ ﬃ"), "STRASSE ʼN FFI");
  EXPECT_EQ(to_lower("ΣΑΣ ΑΣ. Σ İ"), "σας ας. σ i̇");
  EXPECT_EQ(to_title("they're ǆ ß"), "They'Re ǅ Ss");
  EXPECT_EQ(to_capitalized("éCOLE"), "École");
}

TEST(Unicode, ClassesFollowPython) {
  EXPECT_TRUE(is_space(0x1c) && is_space(0xa0) && is_space(0x3000) && !is_space(0x200b));
  EXPECT_TRUE(is_digit(0xb2) && !is_decimal(0xb2) && is_numeric(0xbd) && is_numeric(0x4e00) && !is_digit(0xbd));
  EXPECT_TRUE(is_lower(0xaa) && is_upper(0x2160) && !is_upper('1'));
  EXPECT_TRUE(is_printable(' ') && !is_printable(0xa0) && !is_printable(0x200b) && is_printable(0x4e00));
  EXPECT_TRUE(is_identifier("_a1") && is_identifier("é") && !is_identifier("1a") && !is_identifier(""));
}

}  // namespace
}  // namespace millrace::jinja
