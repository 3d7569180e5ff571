// Stored responses are bounded and belong to their owner; long conversations are cut between turns.
#include "server/stored_responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/conversation_cut.h"
#include "server/requests/api_error.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

StoredTurn turn(const std::string& said, const std::string& answer, std::shared_ptr<const StoredTurn> previous = {}) {
  const Json output = listed_input(Json::array({{{"role", "assistant"}, {"content", answer}}}));
  return {.owner = "ann",
          .input = to_text(listed_input(said)),
          .response = to_text(Json{{"output", output}}),
          .previous = std::move(previous)};
}

std::vector<std::string> texts(const Json& items) {
  std::vector<std::string> all;
  for (const Json& item : items) all.push_back(item["content"][0]["text"]);
  return all;
}

TEST(StoredResponses, AConversationOutlivesItsFirstTurns) {
  StoredResponses stored;
  stored.add("1", turn("a", "b"));
  stored.add("2", turn("c", "d", stored.previous("1", "ann")));
  EXPECT_TRUE(stored.forget("1", "ann"));
  EXPECT_FALSE(stored.forget("1", "ann"));
  stored.add("3", turn("e", "f", stored.previous("2", "ann")));
  const auto last = stored.find("3", "ann");
  EXPECT_THAT(texts(items_before_answer(*last)), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(texts(items_with_answer(*last)), ElementsAre("a", "b", "c", "d", "e", "f"));
}

TEST(StoredResponses, OnlyTheOwnerFindsThem) {
  StoredResponses stored;
  stored.add("1", turn("a", "b"));
  EXPECT_EQ(stored.find("1", "ben"), nullptr);
  EXPECT_FALSE(stored.forget("1", "ben"));
  EXPECT_THROW(stored.previous("1", "ben"), ApiError);
  EXPECT_NE(stored.find("1", "ann"), nullptr);
}

TEST(StoredResponses, TheLeastRecentlyUsedOneGoesFirst) {
  StoredResponses stored({.responses = 2});
  stored.add("1", turn("a", "b"));
  stored.add("2", turn("c", "d"));
  EXPECT_NE(stored.find("1", "ann"), nullptr);
  stored.add("3", turn("e", "f"));
  EXPECT_EQ(stored.find("2", "ann"), nullptr);
  EXPECT_NE(stored.find("1", "ann"), nullptr);
}

TEST(StoredResponses, BytesCountEarlierTurns) {
  StoredResponses stored({.bytes = 6000});
  for (int i = 0; i < 100; ++i) {
    const std::string before = std::to_string(i - 1);
    auto previous = stored.find(before, "ann");
    if (previous) stored.forget(before, "ann");  // from here on, only the next turn holds it
    stored.add(std::to_string(i), turn(std::string(500, 'x'), "y", std::move(previous)));
    EXPECT_LE(stored.bytes(), 6000u);
  }
  stored.add("large", turn(std::string(7000, 'x'), "y"));
  EXPECT_EQ(stored.size(), 0u);
  EXPECT_EQ(stored.bytes(), 0u);
}

TEST(StoredResponses, ConversationsHaveABoundedNumberOfTurns) {
  StoredResponses stored({.turns = 2});
  stored.add("1", turn("a", "b"));
  stored.add("2", turn("c", "d", stored.previous("1", "ann")));
  EXPECT_THROW(stored.previous("2", "ann"), ApiError);
}

// Messages by one letter each: s, u, a (assistant), t (tool).
Json conversation(const std::string& letters) {
  Json messages = Json::array();
  for (size_t i = 0; i < letters.size(); ++i) {
    const char* role = letters[i] == 's'   ? "system"
                       : letters[i] == 'u' ? "user"
                       : letters[i] == 'a' ? "assistant"
                                           : "tool";
    messages.push_back({{"role", role}, {"content", std::string(1, letters[i]) + std::to_string(i)}});
  }
  return messages;
}

std::vector<std::string> rests(const std::string& letters) {
  const Json messages = conversation(letters);
  const ConversationCuts cuts(messages);
  std::vector<std::string> all;
  for (size_t i = 0; i < cuts.count(); ++i) {
    std::string rest;
    for (const Json& message : cuts.shortened(i)) rest += message["content"];
    all.push_back(rest);
  }
  return all;
}

TEST(ConversationCuts, KeepSystemMessagesAndWholeTurns) {
  EXPECT_THAT(rests("suauau"), ElementsAre("s0u3a4u5", "s0u5"));
  EXPECT_THAT(rests("uauuatat"), ElementsAre("u2u3a4t5a6t7", "u3a4t5a6t7", "u3a6t7"));
  EXPECT_THAT(rests("suatt"), ElementsAre());
  EXPECT_THAT(rests("sau"), ElementsAre("s0u2"));
  EXPECT_THAT(rests("aa"), ElementsAre());
}

}  // namespace
}  // namespace millrace
