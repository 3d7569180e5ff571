// A model that knows nothing: draws tokens at random from what a constraint allows.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <utility>

#include "grammar/grammar_compiler.h"

namespace millrace {

inline GrammarSpec schema(std::string text) { return {.kind = GrammarSpec::Kind::JsonSchema, .text = std::move(text)}; }
inline GrammarSpec regex(std::string text) { return {.kind = GrammarSpec::Kind::Regex, .text = std::move(text)}; }
inline GrammarSpec ebnf(std::string text) { return {.kind = GrammarSpec::Kind::Ebnf, .text = std::move(text)}; }

// All single bytes, pieces of JSON and words, and two end tokens: 300 and some.
GrammarVocabulary small_vocabulary();

// As many tokens as a large model has, of every length and script. The same for the same size.
GrammarVocabulary large_vocabulary(size_t size);

// One of the tokens that a mask allows; -1: it allows none.
int32_t random_token(const std::vector<uint32_t>& mask, std::mt19937_64& random);

// Nothing: it did not end within so many tokens.
std::optional<std::string> random_answer(Constraint& constraint, const GrammarVocabulary& vocabulary,
                                         std::mt19937_64& random, int most_tokens = 3000);

}  // namespace millrace
