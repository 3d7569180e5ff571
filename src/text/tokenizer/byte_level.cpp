#include "text/tokenizer/byte_level.h"

#include "text/unicode/utf8.h"

namespace millrace {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 512> bytes;  // by character; -1: not in the alphabet

  // Printable Latin-1 bytes map to themselves, the others to U+0100 and up, in order.
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(characters[byte], c);
      bytes[c] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

void append_byte_level(std::string& text, std::string_view bytes) {
  const Alphabet& a = alphabet();
  for (const char byte : bytes) text += a.characters[static_cast<unsigned char>(byte)];
}

std::optional<std::string> bytes_of_byte_level(std::string_view token) {
  const Alphabet& a = alphabet();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const Character c = decode_utf8(token.data() + i);
    if (c.code >= a.bytes.size() || a.bytes[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(a.bytes[c.code]));
    i += c.length;
  }
  return bytes;
}

}  // namespace millrace
