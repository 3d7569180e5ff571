// UTF-8 where it is hot: stepping through text that is known to be valid, and repairing text that is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Length of the character that begins with this byte; valid text only.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

struct Character {
  char32_t code;
  size_t length;  // in bytes
};

// The character at `p`; valid text only.
inline Character decode_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// Where the character before `position` begins; valid text only, position > 0.
inline size_t previous_utf8(std::string_view text, size_t position) {
  do --position;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void append_utf8(std::string& text, char32_t code);

// What stands at a position of text that may be broken. Broken bytes are taken as Unicode recommends, and as Python and
// Rust do: the longest prefix of a character that could still have become one counts as one error.
struct Utf8Step {
  enum Kind { Valid, Broken, Unfinished } kind;  // Unfinished: the text ends inside a character that is good so far
  size_t length;
};
Utf8Step step_utf8(std::string_view text, size_t position);

bool is_valid_utf8(std::string_view text);

// Every error becomes one U+FFFD, as Python's bytes.decode(errors="replace") has it.
std::string repair_utf8(std::string_view text);

}  // namespace millrace
