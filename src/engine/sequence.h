// One choice of a request: its tokens, its drafts, its pages, how many rows are computed, and what came out of them.
#pragma once

#include <algorithm>
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
  // `most_drafts`: draft tokens that a step may check; their buffers are allocated here.
  Sequence(std::shared_ptr<Group> group, int32_t choice, BlockTable table, int32_t longest, int64_t vocab,
           int32_t most_drafts = 0);

  RequestId id() const { return group_->id; }
  int32_t choice() const { return choice_; }
  const std::string& client() const { return group_->request.client; }
  int priority() const { return group_->request.priority; }
  double arrival() const { return group_->arrival; }
  const Request& request() const { return group_->request; }
  Group& group() { return *group_; }

  // Tokens that the next step may compute: the rest of the prompt, or the token generated last and its drafts.
  std::span<const int32_t> pending() const { return std::span(tokens_).subspan(static_cast<size_t>(computed_)); }
  std::span<const int32_t> tokens() const { return std::span(tokens_).first(static_cast<size_t>(length_)); }
  int32_t computed() const { return computed_; }
  int32_t length() const { return length_; }    // known tokens: prompt and generated, without drafts
  int32_t longest() const { return longest_; }  // prompt and everything it may generate
  int32_t prompt_length() const { return prompt_length_; }
  int32_t generated() const { return length() - prompt_length_; }
  // All known tokens but the last generated one are computed: each pending row gives a token of the answer.
  bool generating() const { return generated() > 0 && computed_ == length_ - 1; }
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

  // Drafts are guesses of the tokens behind the known ones, between two steps there are none. set_drafts() keeps the
  // beginning that this sequence could generate and that leaves it running: no end tokens, nothing that the constraint
  // forbids or ends with. It prepares the masks of all pending rows.
  int32_t most_drafts() const { return most_drafts_; }
  int32_t drafted() const { return static_cast<int32_t>(tokens_.size()) - length_; }
  int32_t next_draft() const { return drafted() > 0 ? tokens_[static_cast<size_t>(length_)] : kNoDraft; }
  void set_drafts(std::span<const int32_t> drafts);
  void keep_drafts(int32_t most) { tokens_.resize(static_cast<size_t>(length_ + std::min(drafted(), most))); }
  void drop_drafts() { keep_drafts(0); }
  static constexpr int32_t kNoDraft = -2;  // differs from every token and from -1, a row without a number

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
  bool scores() const { return !prompt_logprobs_.empty() && generated() == 0; }

  // Prepares the mask of the next token; needs no logits, so it can go on while the device computes them. Masks of
  // drafts are prepared before.
  void prepare_mask();
  // Draws the tokens behind the pending ones row by row, up to and including the first that differs from its draft.
  // Touches nothing but this sequence: several can draw at once. Helpers: as in Sampler.
  void draw(Matrix logits, ThreadPool* helpers = nullptr);
  std::span<const int32_t> drawn() const { return drawn_; }
  // Takes what draw() gave for the pending row `row`, in order; decides whether it is the last token.
  Emission take_own(size_t row);
  // Only the token matters, and no mask bounds it: a device can draw it from its logits.
  bool needs_token_only() const;
  // Nothing but the likeliest token matters: no draw, no penalties, no masks, no log-probabilities.
  bool wants_likeliest() const;
  const Sampler& sampler() const { return sampler_; }
  Emission take_drawn(int32_t token);  // by a device
  Emission take(int32_t token);        // -1: no logit is a number
  Emission end_of_prompt();            // of a request that generates nothing

  void become(int32_t choice);  // before anything was drawn
  // A choice of the same request that fork() gives out when the prompt is computed. It is made with the request, since
  // a sampler holds arrays as long as the vocabulary.
  void add_choice(std::unique_ptr<Sequence> choice) { unborn_.push_back(std::move(choice)); }
  std::unique_ptr<Sequence> fork(int32_t choice);  // after the prompt; without pages

 private:
  void start_choice();
  std::span<uint32_t> mask(int32_t row);
  void fill_mask(int32_t row);
  void mask_drafts();
  int32_t draw_row(std::span<float> logits, int32_t row, ThreadPool* helpers);
  Emission emission(int32_t token);
  Emission broken(FinishReason reason, std::string_view why);

  std::shared_ptr<Group> group_;
  int32_t choice_;
  BlockTable table_;
  int32_t prompt_length_, length_, longest_, computed_ = 0, most_drafts_;
  int64_t vocab_;
  std::vector<int32_t> tokens_;  // the known ones and behind them the drafts
  std::vector<std::unique_ptr<Sequence>> unborn_;
  Sampler sampler_;
  std::shared_ptr<Constraint> constraint_;
  std::vector<uint32_t> masks_;  // of each pending row; empty: nothing constrains this sequence
  std::vector<uint8_t> masked_;  // by pending row: its mask applies
  std::vector<int32_t> drawn_;   // by pending row
  std::vector<TokenLogprobs> logprobs_;
  FinishReason finish_ = FinishReason::None;

  std::vector<TokenLogprobs> prompt_logprobs_;  // by position
  std::vector<double> pooled_;                  // the sum of hidden states, or the last one
  std::vector<float> embedding_;
};

}  // namespace millrace
