// Token ids on the command line: "1,2,3".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// Throws Usage on anything but integers in [0, vocab). vocab 0: any non-negative id.
std::vector<int32_t> parse_token_list(const std::string& text, int64_t vocab);

// Comma-separated positive integers of a flag such as -b 1,8,32.
std::vector<int32_t> parse_int_list(const std::string& flag, const std::string& text, int32_t least, int32_t most);

}  // namespace millrace
