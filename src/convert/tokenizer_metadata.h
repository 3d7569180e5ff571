// The texts of a Hugging Face folder as GGUF metadata: tokenizer, end tokens, chat templates.
#pragma once

#include <string>

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"

namespace millrace {

// `rows`: of the embedding. A folder without tokenizer.json becomes a file that says that it has no vocabulary.
void add_tokenizer_metadata(const WeightSource& source, const std::string& architecture, int64_t rows,
                            GgufMetadataBuilder& out);

}  // namespace millrace
