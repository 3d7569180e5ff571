// Tokens back to text. Every decoder is a stage that tokens stream through, so that whole texts and streams of tokens
// are decoded by the same code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pattern.h"

namespace millrace {

// Takes chunks of tokens and hands them on, changed. A token usually comes as one chunk; a stage that makes one token
// of many (Fuse) gives it out in the pieces it has.
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

// What one decoder of tokenizer.json is: how to open its stage, and what it means for the bytes of a single token.
struct DecodeStep {
  std::function<std::unique_ptr<DecodeStage>()> open;
  std::function<std::string(std::string)> token_bytes = nullptr;  // null: leaves them as they are
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
DecodeStep space_between_tokens();  // what stands in when a tokenizer has no decoder

// A chain of open stages. Tokens go in; text comes out as soon as it is certain.
class DecodeStream {
 public:
  explicit DecodeStream(const std::vector<DecodeStep>& steps);
  ~DecodeStream();

  void push(std::string_view token);
  void finish();
  std::string take();  // the text that came out since the last call

 private:
  class Output;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
  std::unique_ptr<Output> output_;
};

}  // namespace millrace
