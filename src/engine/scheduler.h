// Decides what each step computes: which sequences are admitted or preempted, and which rows of each are computed.
// Knows pages and tokens, not the model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"
#include "cache/state_cache.h"
#include "engine/chunk_memory.h"
#include "engine/draft_plan.h"
#include "engine/drafter.h"
#include "engine/fair_queue.h"
#include "engine/parking.h"
#include "engine/sequence.h"
#include "engine/step_batch.h"
#include "engine/step_pacer.h"

namespace millrace {

struct SchedulerLimits {
  int64_t rows = 0, sequences = 0, logit_rows = 0;  // limits of one step
  int64_t long_from = 0;                            // Model::long_from()
  bool prefix_cache = true;
  Drafter* drafter = nullptr;   // null: every decode has one row
  int32_t draft_tokens = 0;     // per sequence and step, at most
  int32_t draft_width = 1;      // a draft and its branches, at most
  int64_t places = 0;           // sequences and branches of a step
  bool drafts_by_cost = false;  // else every draft is verified whole
  double draft_margin = 0;      // DraftPlan::Limits
  bool runs_ahead = false;      // steps without drafts can start before their tokens are known
  // Rows of the last chunk of a lone prompt, give or take a half. Few rows make a repeated prompt cheap, many make the
  // step that they add to a new one cheap.
  int32_t last_chunk = 64;
  bool whole_prompts = false;  // a prompt is computed in one step: Model::pools()
  bool same_chunks = true;     // a lone prompt that was seen before is computed in the same chunks
};

class Scheduler {
 public:
  Scheduler(StateCache& kv, const SchedulerLimits& limits, StepPacer& pacer);
  ~Scheduler();

  void park_with(Parking* parking) { parking_ = parking; }  // null, the default: no session is parked
  void add(std::unique_ptr<Sequence> sequence) { waiting_.push(std::move(sequence)); }
  void cancel(RequestId id, int32_t choice);  // -1: all of the request

  // Gives pages to waiting sequences in queue order, while pages and places last. `now` in seconds.
  void admit(double now);

  // The rows of one sequence in a step.
  struct Part {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    StepBatch::Rows logits, hidden;
    int32_t branch_rows = 0;  // of its branches, behind its own rows; all have logits
    int32_t logit_rows() const { return logits.size() + branch_rows; }
    // Before advance(): the step computes all known tokens of the sequence, so the next one can be drawn.
    bool completes() const { return rows == static_cast<int32_t>(sequence->pending().size()); }
  };
  struct Plan {
    std::vector<Part> parts;
    Decodes decodes;                    // inputs of the pacer: decodes
    int64_t chunk = 0, chunk_past = 0;  // and rows of prompts
  };
  // Plans the next step and fills its batch: first all decodes, then prompt chunks as large as the pacer allows.
  // Preempts sequences if pages run out. No parts: no sequence is running.
  void compose(Plan& plan, StepBatch& batch);
  // The same while step `now` is still running: its decodes continue with tokens that are not known yet
  // (models/batch.h), except sequences that certainly end with `now`. False: other work is due, or pages are missing,
  // so the next step depends on the results of `now`.
  bool compose_ahead(const Plan& now, Plan& next, StepBatch& batch);

  // Call when the step is about to run or was enqueued: the recurrent state of its sequences counts as changed from now
  // on.
  void started(const Plan& plan);
  void failed(const Plan& plan);  // the step threw: the recurrent state of its sequences is unknown
  // Call after the step: counts rows of this sequence as computed. Its full pages can be shared from now on.
  void advance(Sequence& sequence, int32_t rows);
  // One more choice of a request whose prompt is computed. Null: no room; the choice waits instead.
  Sequence* fork(Sequence& parent, int32_t choice);
  // `token` comes next: goes on with the branch that begins with it, if there is one. As Sequence::choose_branch().
  int32_t choose_branch(Sequence& sequence, int32_t token);
  // Drops the computed rows past the known tokens of the sequence: rows of rejected drafts.
  void truncate(Sequence& sequence);
  // Call after the step, while its hidden states are in memory: tells the drafter the computed rows, if it follows.
  void follow();
  void retire();  // finished sequences give back their pages

  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  const FairQueue& waiting() const { return waiting_; }
  void charge(const std::string& client, double tokens) { waiting_.charge(client, tokens); }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  PrefixTree& tree() { return tree_; }
  uint64_t preemptions() const { return preemptions_; }
  uint64_t evicted() const { return evicted_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t cached_tokens() const { return cached_tokens_; }

 private:
  bool place(Sequence& sequence, int32_t headroom);
  void unpark(Sequence& sequence, int32_t headroom);
  PrefixTree::Node* node_of(const Sequence& sequence);
  int32_t reuse_end(const Sequence& sequence);
  int32_t reusable(const Sequence& sequence);
  int32_t branch(const Sequence& sequence);
  void match(Sequence& sequence);
  bool take_slot(Sequence& sequence);
  bool restore_slot(Sequence& sequence);
  bool begin_at_zero(Sequence& sequence, int32_t headroom);
  Slot free_slot();
  bool take_pages(Sequence& sequence, int32_t tokens, int32_t headroom);
  bool begin_inside_page(Sequence& sequence, int32_t headroom);
  bool make_room(int32_t pages);
  void skip_known_pages(Sequence& sequence);
  void count_cached(Sequence& sequence, int32_t tokens);
  void keep_pages(Sequence& sequence);  // including the page being filled
  void keep_full_pages(Sequence& sequence);
  bool lacks_snapshot(Sequence& sequence, int32_t tokens);
  void keep_snapshot(Sequence& sequence);  // a copy
  void give_snapshot(Sequence& sequence, int32_t tokens, Slot state);
  void release(Sequence& sequence);
  void restart(size_t index);
  size_t victim() const;
  void make_room_for_decodes();
  void rewind_slots();
  bool rewind(Sequence& sequence);
  bool unshare_last_page(Sequence& sequence);
  bool take_checkpoint(Sequence& sequence);
  bool is_followed(const Sequence& sequence) const;
  bool may_draft(const Sequence& sequence, int64_t step) const;
  static uint64_t draft_key(const Sequence& sequence);
  int32_t draft_room(const Sequence& sequence, int64_t rows) const;
  void draft_tokens();
  std::span<const int32_t> draft_lengths(const Decodes& decodes, int64_t room);
  std::span<int32_t> draft_buffer();
  bool may_branch(const Sequence& sequence) const;
  std::span<const int32_t> alternatives(const Sequence& sequence) const;
  int64_t branch_places() const;
  void ask_for_branches();
  bool open_branch(const Sequence& sequence, DraftBranch& branch, int32_t drafts);
  void add_branches(Part& part, StepBatch& batch);
  int32_t with_pages(Sequence& sequence, int32_t drafts);
  void take_drafts();
  void requeue_grown();
  void share_chunk(const Decodes& decodes, int64_t rows);
  void share_whole(int64_t rows);
  int32_t next_stop(const Sequence& sequence, bool lone) const;
  int32_t snapshot_spacing(int32_t prompt) const;
  bool computed_by_another(const Sequence& sequence) const;
  bool follows_another(Sequence& sequence);
  void skip_to_snapshot(Sequence& sequence);
  void add_part(Plan& plan, StepBatch& batch, Sequence& sequence, int32_t rows);

  StateCache& kv_;
  PrefixTree tree_;
  SchedulerLimits limits_;
  StepPacer& pacer_;
  double now_ = 0;  // seconds, at the last admit()
  Parking* parking_ = nullptr;
  FairQueue waiting_;
  ChunkMemory chunks_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  struct Share {
    Sequence* sequence;
    int32_t rows;
    bool is_short;
  };
  std::vector<Share> prompts_;  // of this step
  // Drafts of this step, by sequence that may have one; then their branches.
  std::vector<Sequence*> drafting_;
  std::vector<DraftAsk> asks_;
  std::vector<DraftOffer> offers_;
  std::vector<FollowedRows> followed_;
  std::vector<int32_t> drafts_;  // [places, draft_tokens]
  DraftPlan draft_plan_;
  int64_t steps_ = 0;  // composed since the engine was idle
  int64_t logit_room_ = 0;
  int64_t prompt_rows_ = 0;  // of all steps
  uint64_t preemptions_ = 0, evicted_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
};

}  // namespace millrace
