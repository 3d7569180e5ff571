// Texts with several conditions at once: the intersection of their languages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/pattern/regex.h"
#include "grammar/pattern/text_language.h"

namespace millrace {

struct TextRules {
  std::vector<std::string> patterns;  // all of them match
  std::vector<std::string> avoided;   // none of them matches
  std::vector<std::string> excepted;  // texts that are not allowed
  Lengths lengths;
};

// Without `lengths`.
TextLanguages::Id language_of(const TextRules& rules, TextLanguages& languages);

// The text between the quotes of a JSON string; nullopt: there is none. A maximum length that would need too many rules
// is lowered. Throws Usage if there would still be too many.
std::optional<GrammarNode> json_text_rule(TextLanguages& languages, TextLanguages::Id language, Lengths lengths,
                                          RuleBuilder& builder);
std::optional<GrammarNode> json_text_rule(const TextRules& rules, RuleBuilder& builder);

// Whether the language has a text that JSON strings can contain.
bool has_json_text(TextLanguages& languages, TextLanguages::Id language);

bool text_follows(const TextRules& rules, const std::string& text, RuleBuilder& builder);

}  // namespace millrace
