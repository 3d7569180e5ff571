// One choice of a request on its way: its tokens, its pages, how far it is computed, and what came out of that.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_table.h"
#include "cache/prefix_tree.h"
#include "engine/request.h"
#include "engine/step_batch.h"

namespace millrace {

// What the choices of one request share. The first sequence computes the prompt, the others begin where it ends.
struct Group {
  RequestId id = 0;
  Request request;
  double arrival = 0;      // seconds on the engine's clock
  double first_step = -1;  // < 0: not yet
  int32_t cached_tokens = 0;
  std::vector<int32_t> unborn;  // choices that begin when the prompt is computed
  bool admitted = false, restarted = false, emitted = false;
};

class Sequence {
 public:
  Sequence(std::shared_ptr<Group> group, int32_t choice, BlockTable table, int32_t longest, int64_t vocab);

  RequestId id() const { return group_->id; }
  int32_t choice() const { return choice_; }
  const std::string& client() const { return group_->request.client; }
  int priority() const { return group_->request.priority; }
  double arrival() const { return group_->arrival; }
  const Request& request() const { return group_->request; }
  Group& group() { return *group_; }

  // Tokens whose keys and values are not in the cache yet: the rest of the prompt, or the token generated last.
  std::span<const int32_t> pending() const { return std::span(tokens_).subspan(static_cast<size_t>(computed_)); }
  std::span<const int32_t> tokens() const { return tokens_; }
  int32_t computed() const { return computed_; }
  int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t longest() const { return longest_; }  // prompt and everything it may generate
  int32_t prompt_length() const { return prompt_length_; }
  int32_t generated() const { return length() - prompt_length_; }
  bool decoding() const { return generated() > 0 && pending().size() == 1; }
  bool finished() const { return finish_ != FinishReason::None; }

  BlockTable& table() { return table_; }
  // Where in the prefix tree the sequence stands: below which root, the node of its last page there (null: at the
  // root), and how many pages that is.
  PrefixKey prefix_key;
  PrefixTree::Node* node = nullptr;
  int32_t pages_in_tree = 0;
  // Its recurrent state, where the model has such, and the tokens which that has taken in. A started step counts, so
  // while one is under way, or has computed a token that was not wanted, this is more than computed().
  Slot slot;
  int32_t slot_tokens = 0;

  void advance(int32_t computed_rows) { computed_ += computed_rows; }
  void begin_at(int32_t computed) { computed_ = computed; }  // what came before was found in the cache
  void begin_again();                                        // its pages and its slot are gone

  // The rows at positions from this one on must be computed, whatever is cached: something is wanted of them.
  int32_t first_wanted() const;
  // Which of the next `rows` rows must give logits, which a hidden state.
  StepBatch::Rows wanted_logits(int32_t rows) const;
  StepBatch::Rows wanted_hidden(int32_t rows) const;

  // What a step gave for the rows that were wanted, before advance().
  void take_prompt_logits(int32_t position, std::span<const float> logits);
  void take_hidden(std::span<const float> hidden);
  bool scores() const { return request().prompt_logprobs >= 0 && generated() == 0; }

  // Prepares the mask of the next token; needs no logits, so it can go on while the device computes them.
  void prepare_mask();
  // Draws the next token, which touches nothing but this sequence: several can draw at once. Helpers: as in Sampler.
  void draw(std::span<float> logits, ThreadPool* helpers = nullptr);
  Emission take_own();  // what was drawn; decides whether it is the last
  // Only the token matters, and no mask bounds it: a device can draw it from its logits.
  bool needs_token_only() const;
  // Nothing but the likeliest token matters: no draw, no penalties, no masks, no log-probabilities.
  bool wants_likeliest() const;
  const Sampler& sampler() const { return sampler_; }
  Emission take_drawn(int32_t token);  // by a device
  Emission take(int32_t token);        // -1: no logit is a number
  Emission end_of_prompt();            // of a request that generates nothing

  void become(int32_t choice);                                             // before anything was drawn
  std::unique_ptr<Sequence> fork(int32_t choice, BlockTable table) const;  // after the prompt; its pages are in `table`

 private:
  void start_choice();
  Emission emission(int32_t token);
  Emission broken(FinishReason reason, std::string_view why);

  std::shared_ptr<Group> group_;
  int32_t choice_;
  BlockTable table_;
  int32_t prompt_length_, longest_, computed_ = 0;
  int64_t vocab_;
  std::vector<int32_t> tokens_;
  Sampler sampler_;
  std::shared_ptr<Constraint> constraint_;
  std::vector<uint32_t> mask_;  // empty: nothing constrains this sequence
  bool masked_ = false;         // the mask applies to the next token
  int32_t drawn_ = -1;          // the next token
  FinishReason finish_ = FinishReason::None;

  std::vector<TokenLogprobs> prompt_logprobs_;  // by position
  std::vector<double> pooled_;                  // the sum of hidden states, or the last one
  std::vector<float> embedding_;
};

}  // namespace millrace
