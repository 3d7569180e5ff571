#include "cli/chat/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/ascii.h"

namespace millrace {
namespace {

struct Known {
  ChatCommand command;
  std::string_view name, argument, about;
};
constexpr std::array kKnown{
    Known{ChatCommand::Help, "help", "", "this list"},
    Known{ChatCommand::System, "system", "TEXT", "set the system message; without TEXT show it, with \"\" remove it"},
    Known{ChatCommand::Set, "set", "NAME VALUE", "an option of the command line: /set temp 0.5; without NAME show all"},
    Known{ChatCommand::Undo, "undo", "", "forget the last message and its answer"},
    Known{ChatCommand::Retry, "retry", "", "answer the last message again"},
    Known{ChatCommand::Reset, "reset", "", "forget the conversation"},
    Known{ChatCommand::Save, "save", "FILE", "write the conversation as JSON"},
    Known{ChatCommand::Load, "load", "FILE", "go on with a conversation that was saved"},
    Known{ChatCommand::Stats, "stats", "", "tokens of the context, and the speed of the last answer"},
    Known{ChatCommand::Think, "think", "", "show the reasoning of the last answer"},
    Known{ChatCommand::Fold, "fold", "", "fold the reasoning of answers to one line, or unfold it"},
    Known{ChatCommand::Quit, "quit", "", "leave (so does Ctrl-D); Ctrl-C stops an answer"},
    Known{ChatCommand::Quit, "exit", "", ""},
};

}  // namespace

ChatLine read_chat_line(const std::string& line) {
  const std::string_view text = ascii_trim(line);
  if (!text.starts_with('/') || text.find('\n') != std::string_view::npos) return {ChatCommand::Message, line};
  if (text.starts_with("//")) return {ChatCommand::Message, std::string(text.substr(1))};
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(1, end - 1), argument = ascii_trim(text.substr(end));
  for (const Known& known : kKnown) {
    if (known.name != word) continue;
    if (known.argument.empty() && !argument.empty()) return {ChatCommand::Message, line};
    return {known.command, std::string(argument)};
  }
  const bool is_word = !word.empty() && std::all_of(word.begin(), word.end(), is_ascii_alnum);
  return {is_word && argument.empty() ? ChatCommand::Unknown : ChatCommand::Message, line};
}

std::string chat_help() {
  std::string help;
  for (const Known& known : kKnown) {
    if (known.about.empty()) continue;
    help += fmt::format("{:<16} {}\n", fmt::format("/{} {}", known.name, known.argument), known.about);
  }
  return help + "\"\"\"              begins and ends a message of several lines; // begins a message with a slash\n";
}

}  // namespace millrace
