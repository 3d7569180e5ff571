#include "base/nearest.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Nearest, FindsTheNameThatWasMeant) {
  const std::vector<std::string> known{"run", "chat", "serve", "smollm2-135m-instruct", "smollm2-360m-instruct"};
  EXPECT_EQ(nearest_name("caht", known), "chat");
  EXPECT_EQ(nearest_name("Serv", known), "serve");
  EXPECT_EQ(nearest_name("smolm2-360m-instruct", known), "smollm2-360m-instruct");
  EXPECT_EQ(nearest_name("SmolLM2-135M-Instuct", known), "smollm2-135m-instruct");
  EXPECT_EQ(did_you_mean("rnu", known), "did you mean run?");
  EXPECT_EQ(nearest_name("SmolLM2", known), "smollm2-135m-instruct") << "the shortest name that begins so";
}

TEST(Nearest, SaysNothingOfNamesThatAreFarApart) {
  EXPECT_EQ(nearest_name("xyz", {"run"}), "") << "no letter is the same";
  EXPECT_EQ(nearest_name("quantize-everything", {"run", "chat"}), "");
  EXPECT_EQ(nearest_name("", {"run"}), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {std::string(1 << 20, 'a')}), "");
  EXPECT_EQ(did_you_mean("run", {}), "");
}

}  // namespace
}  // namespace millrace
