#include "base/error.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace millrace
