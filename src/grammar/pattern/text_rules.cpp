#include "grammar/pattern/text_rules.h"

#include <algorithm>

#include "grammar/pattern/pattern_language.h"
#include "grammar/pattern/text_automaton.h"

namespace millrace {
namespace {

constexpr int64_t kMostCountedStates = 1000;  // states of an automaton times counted lengths

// Without control characters that have no short escape.
const CodeSet kWritten = CodeSet{{0, 0x1F}}.without({{'\b', '\n'}, {'\f', '\r'}}).complement();

}  // namespace

TextLanguages::Id language_of(const TextRules& rules, TextLanguages& languages) {
  std::vector<TextLanguages::Id> all;
  for (const std::string& pattern : rules.patterns)
    all.push_back(pattern_language(pattern, RegexUse::JsonString, languages));
  for (const std::string& pattern : rules.avoided) all.push_back(avoided_language(pattern, languages));
  for (const std::string& text : rules.excepted) all.push_back(languages.inverse(languages.text(text)));
  return languages.both(std::move(all));
}

std::optional<GrammarNode> json_text_rule(TextLanguages& languages, TextLanguages::Id language, Lengths lengths,
                                          RuleBuilder& builder) {
  const auto write = [&](Lengths counted) {
    return language_rule(
        languages, languages.both({language, length_language(counted, languages)}), kWritten,
        [](const CodeSet& set) { return json_character(set); }, builder);
  };
  if (lengths.most > 0) {
    const auto states = static_cast<int64_t>(count_states(languages, language, kWritten));
    const int64_t fewer = std::max(lengths.least, kMostCountedStates / states);
    const std::optional<GrammarNode> shorter =
        fewer < lengths.most ? write({lengths.least, fewer}) : std::optional<GrammarNode>();
    if (shorter) return shorter;  // otherwise all texts are longer
  }
  return write(lengths);
}

std::optional<GrammarNode> json_text_rule(const TextRules& rules, RuleBuilder& builder) {
  TextLanguages languages(builder);
  return json_text_rule(languages, language_of(rules, languages), rules.lengths, builder);
}

bool has_json_text(TextLanguages& languages, TextLanguages::Id language) {
  return has_text(languages, language, kWritten);
}

bool text_follows(const TextRules& rules, const std::string& text, RuleBuilder& builder) {
  TextLanguages languages(builder);
  return languages.has(language_of(rules, languages), text);
}

}  // namespace millrace
