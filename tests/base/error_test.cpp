#include "base/error.h"

#include <gtest/gtest.h>

#include "base/printable.h"

namespace millrace {
namespace {

TEST(Error, MessageIsOnePrintableLineWhateverTheFileHeld) {
  try {
    fail(ErrorKind::BadFile, "bad key '{}'", "a\nb\x1b[31m" + std::string(5000, 'x'));
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.size(), 1100u);
    EXPECT_EQ(e.kind(), ErrorKind::BadFile);
  }
}

TEST(Printable, HasNoControlCharactersAndIsUtf8) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("h\xc3\xa9 \xe6\x97\xa5"), "h\xc3\xa9 \xe6\x97\xa5");
  EXPECT_EQ(printable("a\x1b]0;b\x07\r\nc\x7f"), "a ]0;b   c ");
  EXPECT_EQ(printable("a\xff\xc3"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(printable("a\xc2\x9b\x33\xc2\xa0"), "a  3\xc2\xa0") << "C1 controls begin escape sequences, too";
}

}  // namespace
}  // namespace millrace
