// Pre-tokenizers by the names of GGUF's tokenizer.ggml.pre.
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer/pre_tokenizer.h"

namespace millrace {

struct GgufPreTokenizer {
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  // What the files do not say but the name implies:
  bool nfc = false;            // the model's tokenizer.json normalizes
  bool ignore_merges = false;  // see BpeOptions
  bool add_bos = false;        // unless the file says otherwise
};

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);  // throws Unsupported

}  // namespace millrace
