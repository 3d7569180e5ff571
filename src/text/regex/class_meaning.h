// The characters that \d, \w, \s, \p{...} and the dot stand for, and case folding: the part of a dialect that is sets.
#pragma once

#include <optional>
#include <string_view>

#include "text/regex/syntax.h"

namespace millrace {

struct ClassMeaning {
  RegexDialect dialect = RegexDialect::Oniguruma;
  RegexReading reading = RegexReading::ForAll;  // of Ecma
  bool ignore_case = false;

  // For the inside of a negated class or assertion: characters that are left out of it are let through.
  ClassMeaning negated() const;

  // \d, \D and the like by their letter; nullopt: the letter names no class.
  std::optional<CodeSet> escape(char32_t letter, bool in_class) const;
  std::optional<CodeSet> property(std::string_view name, bool inverse) const;  // nullopt: no such property
  CodeSet dot(bool with_line_ends) const;
  // Adds members that differ in case only, where case is ignored. False: engines disagree about the result.
  bool fold(CodeSet& set) const;
};

// Characters that are in \w, or not in \w, for every engine of the Ecma dialect.
const CodeSet& ecma_word_characters();
const CodeSet& ecma_other_characters();

}  // namespace millrace
