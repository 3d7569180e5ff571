// Opens vocabularies of tests: a tokenizer.json, or the tokenizer.ggml.* metadata of a GGUF file as JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace millrace {

std::string read_file(const std::filesystem::path& path);
GgufVocabulary parse_gguf_vocabulary(const std::string& json);
std::shared_ptr<const Tokenizer> open_vocabulary(const std::filesystem::path& path);  // *.gguf.json has GGUF metadata

}  // namespace millrace
