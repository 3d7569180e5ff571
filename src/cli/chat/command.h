// What a line of a chat means: a command, or a message for the model.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

enum class ChatCommand : uint8_t {
  Message,  // no command
  Unknown,  // one word behind a slash that is no command: probably a typing error
  Help,
  System,
  Set,
  Undo,
  Retry,
  Reset,
  Save,
  Load,
  Stats,
  Think,
  Fold,
  Quit,
};

struct ChatLine {
  ChatCommand command = ChatCommand::Message;
  std::string text;  // the message, or the argument of the command
};

// Only lines that consist of a known command, and of an argument if it takes one, are commands: "/usr is full" is a
// message. A second slash makes a message of anything: "//help" says "/help".
ChatLine read_chat_line(const std::string& line);

std::string chat_help();  // one line for each command

}  // namespace millrace
