#include "base/json_text.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace millrace {
namespace {

TEST(JsonText, StringsAreWrittenAsTheLibraryWritesThem) {
  const auto seed = fresh_seed();
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

TEST(JsonText, WhatIsNestedTooDeeplyIsNoJson) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(json_text(read_json(nested(500))), nested(500));
  EXPECT_EQ(json_text(read_ordered_json(nested(500))), nested(500));
  EXPECT_EQ(json_text(read_json_with_comments("// why\n[1, {\"a\": [2]}]")), "[1,{\"a\":[2]}]");
  for (const size_t depth : {1500, 1000000}) {
    EXPECT_TRUE(read_json(nested(depth)).is_discarded());
    EXPECT_TRUE(read_json_with_comments(nested(depth)).is_discarded());
    EXPECT_TRUE(read_ordered_json(nested(depth)).is_discarded());
  }
  for (const char* bad : {"", "[", "[1,]", "{\"a\"}", "// [1]", "[1] x"}) EXPECT_TRUE(read_json(bad).is_discarded());
}

}  // namespace
}  // namespace millrace
