#include "text/answer/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {}}}])");

TEST(Instructions, AddASystemMessage) {
  const Json messages = instruct_about_tools(Json::parse(R"([{"role": "user", "content": "Hi"}])"), kTools);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_THAT(messages[0]["content"].get<std::string>(), HasSubstr("\"name\":\"weather\""));
}

TEST(Instructions, ExtendTheSystemMessage) {
  const Json messages = instruct_about_tools(Json::parse(R"([{"role": "system", "content": "Be brief."}])"), kTools);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0]["content"].get<std::string>(), testing::StartsWith("Be brief.\n\n"));
}

TEST(Instructions, WriteCallsAndResultsAsText) {
  const Json messages = instruct_about_tools(Json::parse(R"([
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "42"}])"),
                                             Json::array());
  EXPECT_EQ(messages[0]["content"], "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  EXPECT_EQ(messages[1]["role"], "user");
  EXPECT_THAT(messages[1]["content"].get<std::string>(), HasSubstr("42"));
}

}  // namespace
}  // namespace millrace
