#include "cli/chat/message_reader.h"

#include "base/ascii.h"

namespace millrace {

std::optional<TypedMessage> read_message(FunctionRef<std::optional<std::string>(bool in_block)> read_line) {
  constexpr std::string_view kQuotes = "\"\"\"";
  auto line = read_line(false);
  if (!line) return std::nullopt;
  std::string_view rest = ascii_trim(*line);
  if (!rest.starts_with(kQuotes)) return TypedMessage{std::move(*line)};
  rest.remove_prefix(kQuotes.size());

  TypedMessage message{.text = "", .block = true};
  for (bool first = true;; first = false) {
    while (!rest.empty() && is_ascii_space(rest.back())) rest.remove_suffix(1);
    const bool ends = rest.ends_with(kQuotes);
    if (ends) rest.remove_suffix(kQuotes.size());
    const bool alone = rest.empty() && (ends || first);  // quotes on a line of their own add no line
    if (!alone) message.text += (message.text.empty() ? "" : "\n") + std::string(rest);
    if (ends) return message;
    line = read_line(true);
    if (!line) return message;  // the end of the input ends the block
    rest = *line;
  }
}

}  // namespace millrace
