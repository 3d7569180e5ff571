// Help with flags that do not exist: the name that millrace has for a flag of another program, the verb that has the
// flag, or the nearest name.
#pragma once

#include <span>
#include <string>

#include "cli/verb.h"

namespace millrace {

// "--image: there is no such option; millrace reads text only" about the first word of a failed command line that is no
// option of the verb. "": there is none.
std::string describe_unknown_flag(std::span<char* const> words, const CLI::App& verb);

// Advice about an argument too many: an unquoted prompt, a value without its option. "": none.
std::string describe_unexpected_word(const CLI::App& verb);

// "did you mean chat?", or "".
std::string hint_about_verb(const std::string& name, const CLI::App& app);

}  // namespace millrace
