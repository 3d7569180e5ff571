// Lines of a chat: commands, messages, and blocks of several lines.
#include "cli/chat/command.h"

#include <gmock/gmock.h>

#include <vector>

#include "cli/chat/message_reader.h"

namespace millrace {
namespace {

std::vector<std::string> read_all(std::vector<std::string> lines) {
  std::vector<std::string> messages;
  size_t at = 0;
  const auto next = [&](bool) { return at < lines.size() ? std::optional(lines[at++]) : std::nullopt; };
  while (const auto message = read_message(next)) messages.push_back((message->block ? "block:" : "") + message->text);
  return messages;
}

TEST(ChatCommandTest, KnownCommandsAndTheirArguments) {
  EXPECT_EQ(read_chat_line("/reset").command, ChatCommand::Reset);
  EXPECT_EQ(read_chat_line("  /help \r").command, ChatCommand::Help);
  EXPECT_EQ(read_chat_line("/exit").command, ChatCommand::Quit);
  const ChatLine set = read_chat_line("/set  temp   0.5 ");
  EXPECT_EQ(set.command, ChatCommand::Set);
  EXPECT_EQ(set.text, "temp   0.5");
  EXPECT_EQ(read_chat_line("/system").text, "");
}

TEST(ChatCommandTest, MessagesMayBeginWithASlash) {
  for (const char* message : {"/usr/bin is what?", "/etc/passwd", "/usr is full", "/help me with this", "/", "/ x",
                              "hello", "/quit\nis a command"}) {
    const ChatLine line = read_chat_line(message);
    EXPECT_EQ(line.command, ChatCommand::Message) << message;
    EXPECT_EQ(line.text, message);
  }
  EXPECT_EQ(read_chat_line("//help").command, ChatCommand::Message);
  EXPECT_EQ(read_chat_line("//help").text, "/help");
  EXPECT_EQ(read_chat_line("/rset").command, ChatCommand::Unknown);
}

TEST(ChatCommandTest, HelpNamesEveryCommand) {
  for (const char* name : {"/system", "/set", "/undo", "/retry", "/load", "/save", "/stats", "/fold", "/think"})
    EXPECT_NE(chat_help().find(name), std::string::npos) << name;
}

TEST(MessageReaderTest, LinesAndBlocks) {
  EXPECT_THAT(read_all({"one", "two"}), testing::ElementsAre("one", "two"));
  EXPECT_THAT(read_all({"\"\"\"", "a", "", " b", "\"\"\"", "c"}), testing::ElementsAre("block:a\n\n b", "c"));
  EXPECT_THAT(read_all({"\"\"\"a", "b\"\"\" "}), testing::ElementsAre("block:a\nb"));
  EXPECT_THAT(read_all({"\"\"\"/help\"\"\""}), testing::ElementsAre("block:/help"));
  EXPECT_THAT(read_all({"\"\"\"", "no end"}), testing::ElementsAre("block:no end"));
}

}  // namespace
}  // namespace millrace
