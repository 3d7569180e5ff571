// One choice of a request: its tokens, drafts and pages, the number of computed rows, and its results.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_table.h"
#include "cache/prefix_tree.h"
#include "engine/draft_branch.h"
#include "engine/draft_history.h"
#include "engine/request.h"
#include "engine/step_batch.h"

namespace millrace {

// State that the choices of one request share. The first sequence computes the prompt; the others start after it.
struct Group {
  RequestId id = 0;
  Request request;
  double arrival = 0;      // seconds on the engine's clock
  double first_step = -1;  // < 0: not yet
  int32_t cached_tokens = 0;
  std::vector<int32_t> unborn;  // choices that start once the prompt is computed
  bool admitted = false, restarted = false, emitted = false;
};

class Sequence {
 public:
  // `most_drafts`: draft tokens per step, at most; their buffers are allocated here.
  Sequence(std::shared_ptr<Group> group, int32_t choice, BlockTable table, int32_t longest, int64_t vocab,
           int32_t most_drafts = 0, bool pooled_by_model = false);

  RequestId id() const { return group_->id; }
  int32_t choice() const { return choice_; }
  const std::string& client() const { return group_->request.client; }
  int priority() const { return group_->request.priority; }
  double arrival() const { return group_->arrival; }
  const Request& request() const { return group_->request; }
  Group& group() { return *group_; }

  // Tokens to compute next: the rest of the prompt, or the last generated token and its drafts.
  std::span<const int32_t> pending() const { return std::span(tokens_).subspan(static_cast<size_t>(computed_)); }
  std::span<const int32_t> tokens() const { return std::span(tokens_).first(static_cast<size_t>(length_)); }
  int32_t computed() const { return computed_; }
  int32_t length() const { return length_; }    // known tokens: prompt and generated, without drafts
  int32_t longest() const { return longest_; }  // prompt and the most tokens it may generate
  int32_t prompt_length() const { return prompt_length_; }
  int32_t generated() const { return length() - prompt_length_; }
  // True if all known tokens except the last generated one are computed: each pending row then gives a token of the
  // answer.
  bool generating() const { return generated() > 0 && computed_ == length_ - 1; }
  bool finished() const { return finish_ != FinishReason::None; }

  int32_t adapter() const { return adapter_; }  // its AdapterTable slot; -1: none

  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }
  // Position in the prefix tree: the root, the node of the last page that is in the tree (null: the root), and the
  // number of pages up to there.
  PrefixKey prefix_key;
  PrefixTree::Node* node = nullptr;
  int32_t pages_in_tree = 0;
  // Recurrent state, if the model has any, and the number of tokens it has taken in. A started step counts, so this
  // exceeds computed() while a step is running or after one computed an unwanted token.
  Slot slot;
  int32_t slot_tokens = 0;
  static constexpr int32_t kUnknownState = -1;  // slot_tokens after rejected drafts or a failed step
  // The state before the last drafts, and the number of tokens it has taken in: rejected drafts restart there.
  Slot checkpoint;
  int32_t checkpoint_tokens = 0;

  // How the tokens that are known at admission are computed.
  struct Prefill {
    int64_t due = -1;       // prompts are served in this order: prompt rows computed before admission, plus its own
    int32_t reuse_end = 0;  // only the state of tokens before this one may come from the prefix tree
    int32_t begun_at = 0;   // computed() at admission
    int32_t branch = 0;     // where other prompts part from this one: a place for a snapshot
    int32_t stop = 0;       // the chunk of this step ends here at the latest
    bool lone = false;      // each of its chunks so far was the only work of its step
    bool follows = false;   // waits for the state of a prompt that begins alike
  };
  Prefill prefill;

  DraftHistory draft_history;

  // Its share of the time and energy of its steps, by rows.
  double compute_ms = 0;
  std::optional<double> joules;

  // The rows of the last step that the drafter has not followed (Drafter::follow).
  struct Fresh {
    int32_t row = kNone;  // the first one in the step
    int32_t position = 0, rows = 0;
    bool decoded = false;                 // a token and its drafts
    static constexpr int32_t kNone = -1;  // their hidden states are lost

    void skip_to(int32_t end) {
      if (row == kNone) return;
      const int32_t skipped = std::clamp(end - position, 0, rows);
      row += skipped;
      position += skipped;
      rows -= skipped;
    }
  };
  Fresh fresh;

  // Drafts are guesses of the tokens after the known ones; between two steps there are none. set_drafts() cuts the
  // drafts before the first end token and before the first token that the constraint forbids or ends with. It also
  // prepares the masks of all pending rows.
  int32_t most_drafts() const { return most_drafts_; }
  int32_t drafted() const { return static_cast<int32_t>(tokens_.size()) - length_; }
  int32_t next_draft() const { return drafted() > 0 ? tokens_[static_cast<size_t>(length_)] : kNoDraft; }
  void set_drafts(std::span<const int32_t> drafts);
  void keep_drafts(int32_t most) { tokens_.resize(static_cast<size_t>(length_ + std::min(drafted(), most))); }
  void drop_drafts() { keep_drafts(0); }
  static constexpr int32_t kNoDraft =
      -2;  // differs from every token, and from -1, the result of a row that allows no token

  // Branches beside the drafts, which also live for one step. They have no masks, so a constrained sequence has none.
  void add_branch(BlockTable table);  // room for one; call before the first step
  std::span<DraftBranch> branches() { return branches_; }
  std::span<const DraftBranch> branches() const { return branches_; }
  void set_branch(DraftBranch& branch, std::span<const int32_t> drafts);  // cut as set_drafts() does
  void drop_branches() {
    for (DraftBranch& branch : branches_) branch.close();
  }
  int32_t branch_rows() const;
  // `token` comes next. If a branch begins with it and the draft does not, the sequence goes on with that branch: with
  // its drafts, pages and rows. Drops the other branches. Returns the number of rows of this step before those of the
  // chosen chain; only row 0 is always that of the sequence itself.
  int32_t choose_branch(int32_t token);

  void advance(int32_t computed_rows) { computed_ += computed_rows; }
  void begin_at(int32_t computed) { computed_ = computed; }  // the tokens before were found in the cache
  void begin_again();                                        // after its pages and slot were taken away

  // Rows from this position on must be computed even if they are cached, because their results are wanted.
  int32_t first_wanted() const;
  // Which of the next `rows` rows need logits, and which need hidden states.
  StepBatch::Rows wanted_logits(int32_t rows) const;
  StepBatch::Rows wanted_hidden(int32_t rows) const;

  // Results of the wanted rows; call before advance().
  void take_prompt_logits(int32_t position, std::span<const float> logits);
  void take_hidden(int32_t position, std::span<const float> hidden);
  bool scores() const { return !prompt_logprobs_.empty() && generated() == 0; }
  bool is_pooled() const { return pooled_by_model_; }
  bool wants_every_row() const { return request().on_row != nullptr && request().kind != RequestKind::Generate; }

  // Prepares the mask of the next token. Needs no logits, so it can run while the device computes. set_drafts() has
  // prepared the masks of drafts.
  void prepare_mask();
  // Draws the token after each pending row, up to and including the first that differs from its draft. Touches only
  // this sequence, so several sequences can draw in parallel. `helpers`: as in Sampler.
  void draw(Matrix logits, ThreadPool* helpers = nullptr);
  std::span<const int32_t> drawn() const { return drawn_; }
  // Accepts the result of draw() for pending row `row`, in order, and decides whether the sequence ends.
  Emission take_own(size_t row);
  // True if only the token is wanted and no mask applies: a device can sample it.
  bool needs_token_only() const;
  // True if the token is the plain argmax: no sampling, penalties, masks or log-probabilities.
  bool wants_likeliest() const;
  const Sampler& sampler() const { return sampler_; }
  Emission take_drawn(int32_t token);  // a token that the device chose
  Emission take(int32_t token);        // -1: no logit is above -infinity
  Emission end_of_prompt();            // for requests that generate nothing

  void become(int32_t choice);  // call before the first draw
  // Adds a choice of the same request, which fork() returns once the prompt is computed. It is created with the
  // request, because its sampler allocates arrays as long as the vocabulary.
  void add_choice(std::unique_ptr<Sequence> choice) { unborn_.push_back(std::move(choice)); }
  std::unique_ptr<Sequence> fork(int32_t choice);  // call after the prompt; the choice has no pages yet

 private:
  void start_choice();
  bool may_follow(int32_t draft) const;
  DraftBranch* branch_of(int32_t token);
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
  int32_t adapter_ = -1;
  int64_t vocab_;
  bool pooled_by_model_;         // the step that computes the prompt gives one row, its embedding
  std::vector<int32_t> tokens_;  // known tokens, then drafts
  std::vector<DraftBranch> branches_;
  std::vector<std::unique_ptr<Sequence>> unborn_;
  Sampler sampler_;
  std::shared_ptr<Constraint> constraint_;
  std::vector<uint32_t> masks_;  // of each pending row; empty: no constraint
  std::vector<uint8_t> masked_;  // by pending row: 1 if its mask applies
  std::vector<int32_t> drawn_;   // by pending row
  std::vector<TokenLogprobs> logprobs_;
  FinishReason finish_ = FinishReason::None;
  int32_t accepted_drafts_ = 0, rejected_drafts_ = 0;

  std::vector<TokenLogprobs> prompt_logprobs_;  // by position
  std::vector<double> pooled_;                  // sum of hidden states, or the last one
  std::vector<float> embedding_;
};

}  // namespace millrace
