// Base64 decoding, for bytes inside of JSON.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

std::string decode_base64(std::string_view text);  // throws BadFile

}  // namespace millrace
