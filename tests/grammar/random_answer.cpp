#include "random_answer.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace millrace {

GrammarVocabulary small_vocabulary() {
  GrammarVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"{\"",  "\": ",   "\":",  "\",",   ", ",           "}}",       "]}",           "\"}", "[\"",   "[{", "{}",
        "[]",   "null",   "true", "false", "name",         "value",    " the",         "ing", "12",    "-1", ".5",
        "\n  ", "\n    ", "\\n",  "\\\"",  "\xE8\xAA\x9E", "\xC3\xA9", "\xF0\x9F\x98", "a\"", "2024-", "@a."}) {
    vocabulary.tokens.emplace_back(piece);
  }
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"", "<|end|>", "<|eot|>", "", ""});
  const auto size = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.end_tokens = {size - 4, size - 3};
  return vocabulary;
}

GrammarVocabulary large_vocabulary(size_t size) {
  GrammarVocabulary vocabulary = small_vocabulary();
  vocabulary.tokens.resize(256 + 32);
  std::mt19937_64 random(1);
  std::set<std::string> seen(vocabulary.tokens.begin(), vocabulary.tokens.end());
  const std::string letters = "etaoinshrdlucmfwypvbgkjqxz", marks = "{}[]\":,.()-_=/\\'`;<>!?*+ \n\t0123456789";
  while (vocabulary.tokens.size() + 1 < size) {
    std::string token = random() % 2 ? " " : "";
    const size_t length = 1 + random() % 10;
    const bool code = random() % 8 == 0, capital = random() % 6 == 0;
    if (random() % 10 == 0) {  // two or three bytes a character
      for (size_t i = 0; i < length / 3 + 1; ++i)
        token += {static_cast<char>(0xE4 + random() % 4), static_cast<char>(0x80 + random() % 64),
                  static_cast<char>(0x80 + random() % 64)};
    } else {
      const std::string& alphabet = code ? marks : letters;
      for (size_t i = 0; i < length; ++i)
        token += alphabet[std::min(random() % alphabet.size(), random() % alphabet.size())];
      if (capital && token[0] != ' ') token[0] = static_cast<char>(std::toupper(token[0]));
    }
    if (seen.insert(token).second) vocabulary.tokens.push_back(token);
  }
  vocabulary.end_tokens = {static_cast<int32_t>(vocabulary.tokens.size())};
  vocabulary.tokens.emplace_back("<|end|>");
  return vocabulary;
}

namespace {

// After a while the walk tries to come to an end: end tokens first, then mostly what closes strings and brackets. Only
// mostly: a pattern of letters takes "null" again and again, and waits for another one.
int32_t choose(const std::vector<int32_t>& allowed, const GrammarVocabulary& vocabulary, std::mt19937_64& random,
               bool hurry) {
  if (!hurry) return allowed[random() % allowed.size()];
  std::vector<int32_t> closing;
  for (const int32_t token : allowed) {
    const std::string& text = vocabulary.tokens[static_cast<size_t>(token)];
    if (std::find(vocabulary.end_tokens.begin(), vocabulary.end_tokens.end(), token) != vocabulary.end_tokens.end())
      return token;
    if (text == "}" || text == "]" || text == "\"" || text == "0" || text == "null") closing.push_back(token);
  }
  const std::vector<int32_t>& from = closing.empty() || random() % 4 == 0 ? allowed : closing;
  return from[random() % from.size()];
}

}  // namespace

int32_t random_token(const std::vector<uint32_t>& mask, std::mt19937_64& random) {
  std::vector<int32_t> words;
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) words.push_back(static_cast<int32_t>(word));
  }
  if (words.empty()) return -1;
  // A word, then a bit of it: near enough to any of them alike.
  const int32_t word = words[random() % words.size()];
  for (;;) {
    const auto bit = static_cast<int32_t>(random() % 32);
    if (mask[static_cast<size_t>(word)] >> bit & 1) return word * 32 + bit;
  }
}

std::optional<std::string> random_answer(Constraint& constraint, const GrammarVocabulary& vocabulary,
                                         std::mt19937_64& random, int most_tokens) {
  std::string text;
  const int patience = static_cast<int>(random() % 60);
  std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(vocabulary.tokens.size())));
  std::vector<int32_t> allowed;
  for (int count = 0; count < most_tokens; ++count) {
    if (constraint.terminated()) return text;
    std::fill(mask.begin(), mask.end(), 0xA5A5A5A5u);
    if (!constraint.fill_mask(mask)) std::fill(mask.begin(), mask.end(), ~0u);
    if (constraint.terminated()) throw std::runtime_error("stuck after: " + text);
    allowed.clear();
    for (size_t token = 0; token < vocabulary.tokens.size(); ++token) {
      if (mask[token / 32] >> (token % 32) & 1) allowed.push_back(static_cast<int32_t>(token));
    }
    const int32_t token = choose(allowed, vocabulary, random, count > patience);
    if (std::find(vocabulary.end_tokens.begin(), vocabulary.end_tokens.end(), token) != vocabulary.end_tokens.end())
      return text;
    text += vocabulary.tokens[static_cast<size_t>(token)];
    constraint.accept(token);
  }
  return {};
}

}  // namespace millrace
