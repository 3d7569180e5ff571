// Converts text to token ids and back, with the results of Hugging Face tokenizers. Reads tokenizer.json or the
// vocabulary of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

struct EncodeOptions {
  bool add_special = true;    // add the tokens of the post-processor (BOS, EOS)
  bool parse_special = true;  // map special tokens in the text to their ids; otherwise they are plain text
  // Byte ranges [begin, end) of the text, sorted, in which special tokens are plain text: the content of messages.
  std::span<const std::pair<size_t, size_t>> content = {};
};

// Two texts as a cross-encoder takes them.
struct EncodedPair {
  std::vector<int32_t> ids;
  int32_t second = 0;  // index of the first id with token type 1; 0: all have type 0
};

struct TokenizerParts;
class DecodeStream;

// Immutable and thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;

  // `text` may hold any bytes. Invalid UTF-8 becomes U+FFFD, one per error, like Python's errors="replace".
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // Both texts with the post-processor's tokens around and between them. `most` > 0: the longer text is cut token by
  // token from its end until there are no more ids than that.
  EncodedPair encode_pair(std::string_view first, std::string_view second, size_t most = 0) const;

  // Skips ids without a token. The result is valid UTF-8; incomplete characters become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  std::string_view token_text(int32_t id) const;  // as in the vocabulary; empty if the id has no token
  std::string token_bytes(int32_t id) const;      // the bytes of the token in a text
  std::optional<int32_t> id_of(std::string_view token) const;
  int32_t vocab_size() const;  // all ids are smaller
  bool is_special(int32_t id) const;

  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> unknown() const;
  std::optional<int32_t> padding() const;
  const std::vector<int32_t>& end_of_generation() const;  // end tokens that the vocabulary names

 private:
  friend class StreamingDetokenizer;
  void push_token(DecodeStream& stream, int32_t id, bool skip_special) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Both functions throw BadFile for broken input and Unsupported for unknown components, with their name.
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
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;  // raw bytes
};
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(GgufVocabulary vocabulary);

}  // namespace millrace
