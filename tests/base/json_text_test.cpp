#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace millrace {
namespace {

TEST(JsonText, StringsAreWrittenAsTheLibraryWritesThem) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string letters = "abc \"\\/\n\t\x01\x7f\xc3\xa9\xf0\x9f\x98\x80\xff~";
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    std::string written = "x";
    append_json_string(text, written);
    EXPECT_EQ(written, "x" + json_text(nlohmann::json(text)));
  }
}

}  // namespace
}  // namespace millrace
