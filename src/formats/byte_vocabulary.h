// A vocabulary of single bytes, so that models with random weights take and give text. Token i < 256 is byte i. The
// tokens behind the special ones have no bytes; they are written as their number in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/gguf_writer.h"

namespace millrace {

inline constexpr int64_t kLeastByteVocabulary = 262;  // the bytes, the special tokens and the token of the merge

void add_byte_vocabulary(int64_t size, GgufMetadataBuilder& metadata);
std::string byte_tokenizer_json(int64_t size);  // the same as tokenizer.json
std::string byte_tokenizer_config();            // tokenizer_config.json
std::string_view byte_chat_template();

}  // namespace millrace
