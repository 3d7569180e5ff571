// "did you mean" for misspelt names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// The shortest known name that begins with the given one, else the one that differs least from it, without regard to
// case; "" if none is near: up to a third of the letters may differ, and two in short words, because a swap of letters
// counts as two. A beginning has four letters or more.
std::string nearest_name(std::string_view given, const std::vector<std::string>& known);

// "did you mean NAME?", or "".
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace millrace
