#include "server/grammar_vocabulary.h"

#include <algorithm>

namespace millrace {

GrammarVocabulary grammar_vocabulary(const TextModel& text, int32_t vocab) {
  GrammarVocabulary result{.end_tokens = text.end_tokens};
  result.tokens.resize(static_cast<size_t>(vocab));
  const int32_t known = std::min(vocab, text.tokenizer->vocab_size());
  for (int32_t token = 0; token < known; ++token) {
    if (!text.tokenizer->is_special(token)) {
      result.tokens[static_cast<size_t>(token)] = text.tokenizer->token_bytes(token);
    }
  }
  return result;
}

}  // namespace millrace
