// Decodes tokens to text. Each decoder is a streaming stage, so that decode() and the streaming detokenizer share their
// code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pattern.h"

namespace millrace {

// Transforms chunks of tokens and passes them to the next stage. A token usually is one chunk; a stage that joins
// tokens (Fuse) emits the joined token in several chunks.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void chunk(std::string_view text, bool begins, bool ends) = 0;
  virtual void finish() = 0;

  void set_next(DecodeStage& next) { next_ = &next; }

 protected:
  DecodeStage& next() { return *next_; }

 private:
  DecodeStage* next_ = nullptr;
};

// One decoder of tokenizer.json: opens its stage, and maps the bytes of a single token.
struct DecodeStep {
  std::function<std::unique_ptr<DecodeStage>()> open;
  std::function<std::string(std::string)> token_bytes = nullptr;  // null: identity
};

DecodeStep byte_level_decoder();
DecodeStep byte_fallback_decoder();
DecodeStep fuse_decoder();
DecodeStep strip_decoder(std::string character, size_t start, size_t stop);
DecodeStep replace_decoder(Pattern pattern, std::string content);
DecodeStep metaspace_decoder(std::string replacement, bool drop_first);
DecodeStep wordpiece_decoder(std::string prefix, bool cleanup);
DecodeStep bpe_decoder(std::string suffix);
DecodeStep ctc_decoder(std::string pad, std::string delimiter, bool cleanup);
DecodeStep space_between_tokens();  // for tokenizers without a decoder

// A chain of stages. Emits text as soon as later tokens cannot change it.
class DecodeStream {
 public:
  explicit DecodeStream(const std::vector<DecodeStep>& steps);
  ~DecodeStream();

  void push(std::string_view token);
  void finish();
  std::string take();  // returns the text emitted since the last call

 private:
  class Output;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
  std::unique_ptr<Output> output_;
};

}  // namespace millrace
