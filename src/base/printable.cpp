#include "base/printable.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace millrace {

std::string printable(std::string_view text) {
  const auto is_plain = [](char c) { return c >= ' ' && c < '\x7f'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string line = read_json(json_text(nlohmann::json(text))).get<std::string>();  // JSON text is always UTF-8
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c < 0x20 || c == 0x7f) line[i] = ' ';
    // U+0080 to U+009F are control characters, too: two bytes.
    if (c == 0xc2 && static_cast<unsigned char>(line[i + 1]) < 0xa0) line.replace(i, 2, "  ");
  }
  return line;
}

}  // namespace millrace
