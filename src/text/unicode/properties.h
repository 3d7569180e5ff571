// Unicode properties by name, for \p{...} of regexes, and those that tokenizers query directly.
#pragma once

#include <optional>
#include <string_view>

#include "text/unicode/code_set.h"

namespace millrace {

CodeSet category_set(std::initializer_list<Category> categories);

// The set of \p{name}: a general category (L, Lu, Letter), a script (Han) or a property (Alphabetic, White_Space).
// Case, spaces, hyphens and underscores of the name are ignored. nullopt: there is no such property.
std::optional<CodeSet> unicode_property(std::string_view name);

CodeSet white_space_set();
CodeSet word_set();       // \w inside of a class
CodeSet lone_word_set();  // \w outside of a class, where Oniguruma adds some numbers of Latin-1
CodeSet posix_punctuation_set();

bool is_white_space(char32_t code);
bool is_word(char32_t code);     // in lone_word_set()
bool is_numeric(char32_t code);  // Nd, Nl, No
// As in Hugging Face's normalizers and pre-tokenizers, see unicode_data.h.
bool is_punctuation(char32_t code);
bool is_combining_mark(char32_t code);
bool is_nonspacing_mark(char32_t code);
bool is_control(char32_t code);    // without tabs and line ends
uint8_t script_of(char32_t code);  // an index into script_names()

}  // namespace millrace
