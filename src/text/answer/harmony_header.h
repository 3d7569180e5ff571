// The header of a message in the harmony format of gpt-oss: the text between <|start|>ROLE and <|message|>, for example
// "<|channel|>analysis" or " to=functions.NAME<|channel|>commentary <|constrain|>json".
#pragma once

#include <string_view>

#include "base/ascii.h"

namespace millrace {

struct HarmonyHeader {
  std::string_view channel;    // empty: none
  std::string_view recipient;  // "functions.NAME" of a tool call; empty: none

  // The function that the message calls; empty: none.
  std::string_view function() const {
    constexpr std::string_view kFunctions = "functions.";
    return recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
  }
};

inline HarmonyHeader read_harmony_header(std::string_view header) {
  const auto word_behind = [&](std::string_view tag) {
    const size_t at = header.find(tag);
    if (at == std::string_view::npos) return std::string_view();
    const std::string_view rest = header.substr(at + tag.size());
    size_t end = 0;
    while (end < rest.size() && rest[end] != '<' && !is_ascii_space(rest[end])) ++end;
    return rest.substr(0, end);
  };
  return {word_behind("<|channel|>"), word_behind(" to=")};
}

}  // namespace millrace
