// Parses tokenizer.json in one pass. The vocabulary and the merges, nearly all of the file, go directly into their
// containers; the rest becomes a small JSON tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

struct TokenizerJson {
  nlohmann::json tree;  // without model.vocab and model.merges
  std::shared_ptr<Vocabulary> vocabulary = std::make_shared<Vocabulary>();
  std::vector<double> scores;  // by id, if the vocabulary is a list of [token, score]

  bool has_merges = false;
  std::string merge_bytes;  // concatenated texts of all merges
  struct Merge {
    uint32_t left, right;  // lengths in merge_bytes
  };
  std::vector<Merge> merges;
};

TokenizerJson read_tokenizer_json(std::string_view text);  // throws BadFile

// Parses any other JSON text, with the same checks of syntax and nesting depth. Error messages contain `name`.
nlohmann::json read_json(std::string_view text, const char* name);

}  // namespace millrace
