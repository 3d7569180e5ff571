// Decodes a stream of token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace millrace {

class Tokenizer;
class DecodeStream;

// The concatenated pieces equal Tokenizer::decode() of all ids, and each piece is valid UTF-8. Text that later tokens
// may change (an incomplete character, a run of byte tokens) is held back.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special);  // the tokenizer must outlive this object
  ~StreamingDetokenizer();

  std::string push(int32_t id);
  std::string finish();  // returns the held-back text and resets the stream

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace millrace
