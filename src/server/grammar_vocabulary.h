// The vocabulary of a model as grammars see it: the bytes of each token that is not special.
#pragma once

#include "engine/text_model.h"
#include "grammar/grammar_compiler.h"

namespace millrace {

// `vocab`: the number of logits, which may exceed the tokenizer's vocabulary.
GrammarVocabulary grammar_vocabulary(const TextModel& text, int32_t vocab);

}  // namespace millrace
