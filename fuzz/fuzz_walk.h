// Compiles a grammar and follows it for some tokens, as a model would.
#pragma once

#include <vector>

#include "base/error.h"
#include "grammar/grammar_compiler.h"

namespace millrace {

inline void walk_grammar(const GrammarSpec& spec) {
  static GrammarCompiler& compiler = *[] {
    GrammarVocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    vocabulary.tokens.emplace_back("");
    vocabulary.end_tokens = {256};
    return new GrammarCompiler(std::move(vocabulary), 1 << 20);
  }();
  try {
    const auto constraint = compiler.compile(spec);
    std::vector<uint32_t> mask(mask_words(257));
    for (uint32_t step = 0; step < 40 && !constraint->terminated(); ++step) {
      if (!constraint->fill_mask(mask) || constraint->terminated()) return;
      int32_t token = -1;
      for (uint32_t i = 0; i < 257 && token < 0; ++i) {
        const uint32_t t = (i * 7 + step * 31) % 257;
        if (mask[t / 32] >> (t % 32) & 1) token = static_cast<int32_t>(t);
      }
      MR_ASSERT(token >= 0);
      if (token == 256) return;
      constraint->accept(token);
    }
  } catch (const Error&) {
  }
}

}  // namespace millrace
