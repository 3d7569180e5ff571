// One request on its way: its tokens, its pages, and how far it is computed.
#pragma once

#include "cache/block_table.h"
#include "engine/request.h"

namespace millrace {

class Sequence {
 public:
  Sequence(RequestId id, Request request, BlockTable table, int32_t longest, int64_t vocab);

  RequestId id() const { return id_; }
  // Tokens whose keys and values are not in the cache yet: the rest of the prompt, or the token generated last.
  std::span<const int32_t> pending() const { return std::span(tokens_).subspan(static_cast<size_t>(computed_)); }
  int32_t computed() const { return computed_; }
  int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t longest() const { return longest_; }  // prompt and everything it may generate
  bool decoding() const { return computed_ >= prompt_length_; }
  bool finished() const { return finish_ != FinishReason::None; }
  BlockTable& table() { return table_; }

  void advance(int32_t computed_rows) { computed_ += computed_rows; }
  // Called when the sequence is longer than the model's long_from(): what was cached before is computed again, once.
  void become_long() { computed_ = is_long_ ? computed_ : 0, is_long_ = true; }
  Emission sample(std::span<float> logits);  // draws the next token and decides whether it is the last

 private:
  RequestId id_;
  Request request_;
  BlockTable table_;
  int32_t prompt_length_, longest_, computed_ = 0;
  bool is_long_ = false;
  std::vector<int32_t> tokens_;
  Sampler sampler_;
  FinishReason finish_ = FinishReason::None;
};

}  // namespace millrace
