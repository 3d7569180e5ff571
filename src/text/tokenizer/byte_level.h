// The alphabet of byte-level BPE: one printable character per byte, so that no text has unknown characters.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Appends `bytes` as characters of the alphabet.
void append_byte_level(std::string& text, std::string_view bytes);

// The bytes of a token in this alphabet; nullopt if it has other characters.
std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace millrace
