// The tokenizer of a Hugging Face folder as GGUF metadata.
#pragma once

#include <optional>
#include <string>

#include "formats/gguf_writer.h"
#include "text/tokenizer.h"

namespace millrace {

// The vocabulary of a tokenizer.json in GGUF's terms. `rows` is the number of rows of the embedding: GGUF files have a
// token for each. The choice of the tokenizer's kind, its pre-tokenizer and its space prefix is the first whose tokens
// are those of the folder's tokenizer on a set of texts. Throws Unsupported if there is none.
GgufVocabulary gguf_vocabulary(const std::string& tokenizer_json, const std::string& tokenizer_config_json,
                               const std::string& architecture, int64_t rows);

void add_vocabulary(const GgufVocabulary& vocabulary, GgufMetadataBuilder& out);

}  // namespace millrace
