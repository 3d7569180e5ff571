// Texts that several things are said about at once: the intersection of all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/regex.h"
#include "grammar/text_language.h"

namespace millrace {

struct TextRules {
  std::vector<std::string> patterns;  // all of them match
  std::vector<std::string> avoided;   // none of them matches
  std::vector<std::string> excepted;  // texts that it is not
  Lengths lengths;
};

// Without the lengths.
TextLanguages::Id language_of(const TextRules& rules, TextLanguages& languages);

// What stands between the quotes of a JSON string; nothing: there is no such text. Where a length is allowed that would
// make very many rules, texts stay shorter. Throws Usage where there would be too many nevertheless.
std::optional<GrammarNode> json_text_rule(TextLanguages& languages, TextLanguages::Id language, Lengths lengths,
                                          RuleBuilder& builder);
std::optional<GrammarNode> json_text_rule(const TextRules& rules, RuleBuilder& builder);

// Whether there is a text in it that can be written.
bool has_json_text(TextLanguages& languages, TextLanguages::Id language);

bool text_follows(const TextRules& rules, const std::string& text, RuleBuilder& builder);

}  // namespace millrace
