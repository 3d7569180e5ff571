// The text of a prompt: an argument, a file, stdin, or an argument with the text of a pipe behind it.
#pragma once

#include <optional>
#include <string>

namespace millrace {

// `argument`: PROMPT, if given; "-" is stdin. `file`: of --file, or empty. Throws Usage if there is no text.
std::string prompt_text(const std::optional<std::string>& argument, const std::string& file);

}  // namespace millrace
