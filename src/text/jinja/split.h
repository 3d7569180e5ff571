// Taking text apart as Python's str does: split, rsplit, splitlines, strip with a set of characters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace::jinja {

// At most `limit` splits; a negative limit means all of them. The pieces are views into the text.
std::vector<std::string_view> split_text(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_text_from_right(std::string_view text, std::string_view separator, int64_t limit);
// At runs of white space, dropping those at the ends.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit);
std::vector<std::string_view> split_spaces_from_right(std::string_view text, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right);

// Whether some character is of the wanted case and none of the other, nor of title case.
bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t));

}  // namespace millrace::jinja
