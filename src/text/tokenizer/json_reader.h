// Reads tokenizer.json in one pass: the vocabulary and the merges, which are nearly all of it, go straight to where
// they are used; the rest becomes a small tree.
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
  Json tree;  // without model.vocab and model.merges
  std::shared_ptr<Vocabulary> vocabulary = std::make_shared<Vocabulary>();
  std::vector<double> scores;  // of a vocabulary that is a list of [token, score]; by id

  bool has_merges = false;
  std::string merge_bytes;  // the texts of all merges, one after the other
  struct Merge {
    uint32_t left, right;  // their lengths
  };
  std::vector<Merge> merges;
};

TokenizerJson read_tokenizer_json(std::string_view text);  // throws BadFile

// Any other JSON text, with the same care for what is broken or nested too deeply. `name` is for the message.
Json read_json(std::string_view text, const char* name);

}  // namespace millrace
