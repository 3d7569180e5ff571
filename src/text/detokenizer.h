// Token ids to text as they come, for streaming.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace millrace {

class Tokenizer;
class DecodeStream;

// The texts given out, joined, are exactly Tokenizer::decode() of all ids; each is valid UTF-8 for itself. What depends
// on tokens to come (half a character, a run of byte tokens) is held back until it is certain.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special);  // the tokenizer must outlive it
  ~StreamingDetokenizer();

  std::string push(int32_t id);
  std::string finish();  // what was held back; then it may be used afresh

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace millrace
