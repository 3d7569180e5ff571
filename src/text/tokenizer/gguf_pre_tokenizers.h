// Pre-tokenizers by name, for tokenizer.ggml.pre of GGUF files.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer/pre_tokenizer.h"

namespace millrace {

struct GgufPreTokenizer {
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  // Implied by the name, not stated in the file:
  bool nfc = false;            // the model's tokenizer.json normalizes to NFC
  bool ignore_merges = false;  // see BpeOptions
  bool add_bos = false;        // unless the file states add_bos
};

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);  // throws Unsupported

// One name for each pre-tokenizer, those of old files without a name excluded.
struct GgufPreTokenizerName {
  std::string_view name;
  bool nfc, ignore_merges;  // as above
};
std::vector<GgufPreTokenizerName> gguf_pre_tokenizer_names();

}  // namespace millrace
