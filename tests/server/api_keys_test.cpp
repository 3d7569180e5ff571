#include "server/api_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace {
namespace {

TEST(ApiKeys, KnowsItsHolders) {
  ApiKeys keys;
  EXPECT_TRUE(keys.empty());
  keys.add("# staff\n\nalice sk-alice-0001\r\nsk-nameless-2\n", "keys");
  EXPECT_EQ(keys.holder("Bearer sk-alice-0001"), "alice");
  EXPECT_EQ(keys.holder("bearer sk-nameless-2"), "key2");
  for (const char* wrong : {"", "Bearer ", "Bearer sk-alice-000", "Bearer sk-alice-00011", "Basic sk-alice-0001",
                            "sk-alice-0001", "Bearer alice", "Bearer  sk-alice-0001"}) {
    EXPECT_EQ(keys.holder(wrong), std::nullopt) << wrong;
  }
}

TEST(ApiKeys, RefusesBadLines) {
  ApiKeys keys;
  EXPECT_THROW(keys.add("a b c\n", "keys"), Error);
  EXPECT_THROW(keys.add("short\n", "keys"), Error);
  try {
    keys.add("good-key-123\nsecret7\n", "keys");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("secret7"), std::string::npos) << "a key must not be printed";
  }
}

}  // namespace
}  // namespace millrace
