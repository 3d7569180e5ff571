// UTF-8: decoding of text that is known to be valid, checking and repair of text that is not.
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

// The same at a position, which moves behind the character.
inline char32_t next_utf8(std::string_view text, size_t& position) {
  const Character c = decode_utf8(text.data() + position);
  position += c.length;
  return c.code;
}

// Where the character before `position` begins; valid text only, position > 0.
inline size_t previous_utf8(std::string_view text, size_t position) {
  do --position;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void append_utf8(std::string& text, char32_t code);
inline std::string to_utf8(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

// Bytes that are not continuation bytes: the characters of valid text.
size_t count_characters(std::string_view text);

// One character, or one error, of text that may be invalid. Errors are counted as Unicode recommends, and as Python and
// Rust do: the longest prefix of a valid character is one error.
struct Utf8Step {
  enum Kind { Valid, Broken, Unfinished } kind;  // Unfinished: the text ends inside of a character that is valid so far
  size_t length;
};
Utf8Step step_utf8(std::string_view text, size_t position);

bool is_valid_utf8(std::string_view text);

// Replaces every error by one U+FFFD, as Python's bytes.decode(errors="replace") does.
std::string repair_utf8(std::string_view text);

}  // namespace millrace
