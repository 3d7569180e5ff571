// ASCII text helpers that no locale can change.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace millrace {

inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_ascii_alnum(char c) { return is_ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z'); }
inline bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string ascii_lower(std::string_view text) {
  std::string copy(text);
  for (char& c : copy) c = ascii_lower(c);
  return copy;
}

inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

inline std::string_view ascii_trim(std::string_view text) {
  while (!text.empty() && is_ascii_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_ascii_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace millrace
