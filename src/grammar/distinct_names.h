// JSON objects without repeated names. A context-free grammar cannot compare names, so this wrapper removes the tokens
// that would complete a name for the second time.
#pragma once

#include <memory>

#include "grammar/automaton/token_vocabulary.h"
#include "grammar/compiled_grammar.h"

namespace millrace {

// `grammar` spells every character of a name in one way and produces JSON values, possibly with text between them that
// has no quotes, braces or brackets. Where only repeated names can follow, they stay allowed. A token that holds the
// same name twice is not noticed; vocabularies have none.
std::unique_ptr<TextConstraint> make_distinct_names(std::unique_ptr<TextConstraint> grammar,
                                                    std::shared_ptr<const TokenVocabulary> vocabulary);

}  // namespace millrace
