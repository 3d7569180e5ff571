// Python's split, rsplit, splitlines and strip.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace::jinja {

// Makes at most `limit` splits; a negative limit means no limit. The pieces are views into the text.
std::vector<std::string_view> split_text(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_text_from_right(std::string_view text, std::string_view separator, int64_t limit);
// Splits at runs of white space and strips both ends.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit);
std::vector<std::string_view> split_spaces_from_right(std::string_view text, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right);

// True if at least one character has the wanted case and none has the other case or title case.
bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t));

}  // namespace millrace::jinja
