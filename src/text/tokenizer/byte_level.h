// The alphabet of byte-level BPE: every byte as a printable character, so that any text is a text of known characters.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Appends `bytes` as characters of the alphabet.
void append_byte_level(std::string& text, std::string_view bytes);

// The bytes that a token of the alphabet stands for; nullopt: it has characters of no byte.
std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace millrace
