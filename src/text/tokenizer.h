// Text to token ids and back, as Hugging Face tokenizers does it, from tokenizer.json or from the vocabulary of a GGUF
// file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct EncodeOptions {
  bool add_special = true;    // the tokens that the model's post-processor puts around a text (BOS, EOS)
  bool parse_special = true;  // special tokens written in the text become their ids; otherwise they are plain text
};

struct TokenizerParts;
class DecodeStream;

// Immutable; any number of threads may use one.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;

  // `text` may hold any bytes. What is not UTF-8 counts as U+FFFD, one for each error as Python's errors="replace" has
  // it: that is the text Hugging Face would have been given.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // Ids that stand for no token are passed over. Always valid UTF-8; broken characters become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  std::string_view token_text(int32_t id) const;  // as the vocabulary writes it; empty: no such token
  std::string token_bytes(int32_t id) const;      // the bytes it stands for in a text
  std::optional<int32_t> id_of(std::string_view token) const;
  int32_t vocab_size() const;  // every id is less
  bool is_special(int32_t id) const;

  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> unknown() const;
  std::optional<int32_t> padding() const;
  const std::vector<int32_t>& end_of_generation() const;  // as far as the vocabulary itself names them

 private:
  friend class StreamingDetokenizer;
  void push_token(DecodeStream& stream, int32_t id, bool skip_special) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Both throw BadFile for what is broken and Unsupported for what is well formed but unknown to us, naming it.
// `tokenizer_config_json` may be empty.
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                                     std::string_view tokenizer_config_json);

// The tokenizer.ggml.* metadata of a GGUF file.
struct GgufVocabulary {
  std::string architecture;  // general.architecture
  std::string model, pre;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::optional<int32_t> bos, eos, unknown, separator, padding, eot, eom, cls, mask;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;  // raw bytes
};
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(GgufVocabulary vocabulary);

}  // namespace millrace
