// The components of a tokenizer, independent of the file format.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  std::unique_ptr<TokenModel> model;
  std::vector<DecodeStep> decoders;

  // The ids around a text if special tokens are requested; kText is the text itself.
  static constexpr int32_t kText = -1;
  std::vector<int32_t> frame = {kText};

  // The same for a pair of texts. Ids from index `second_type` on have token type 1.
  struct PairFrame {
    static constexpr int32_t kSecondText = -2;
    std::vector<int32_t> ids = {kText, kSecondText};
    size_t second_type = 2;
  } pair;

  std::optional<int32_t> bos, eos, unknown, padding;
  std::vector<int32_t> end_of_generation;

  // Derived from the above by finish().
  struct TokenEntry {
    const AddedToken* added = nullptr;  // null: an ordinary token
    std::string normalized;             // input of the decoders for an added token; empty: its content
  };
  std::vector<TokenEntry> entries;  // by id
  AddedTokenFinder raw_finder, normalized_finder;

  void finish();
};

}  // namespace millrace
