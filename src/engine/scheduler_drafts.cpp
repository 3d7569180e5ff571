// The drafts of a step: how many tokens of each sequence, and the removal of rejected rows.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/scheduler.h"

namespace millrace {

bool Scheduler::is_followed(const Sequence& s) const {
  if (limits_.drafter == nullptr || !limits_.drafter->follows() || s.most_drafts() == 0) return false;
  return !limits_.drafts_by_cost || !s.draft_history.gave_up();
}

void Scheduler::follow() {
  followed_.clear();
  for (auto& s : running_) {
    const auto fresh = std::exchange(s->fresh, {});
    if (fresh.row == Sequence::Fresh::kNone || fresh.rows == 0 || !is_followed(*s)) continue;
    followed_.push_back({draft_key(*s), s->tokens(), s->table().pages(), fresh.row, fresh.position, fresh.rows,
                         s->generating() && !s->finished() && may_draft(*s, steps_ + 1), fresh.decoded,
                         may_branch(*s) ? limits_.draft_width - 1 : 0});
  }
  if (!followed_.empty()) limits_.drafter->follow(followed_);
}

bool Scheduler::may_draft(const Sequence& s, int64_t step) const {
  if (limits_.drafter == nullptr || s.most_drafts() == 0) return false;
  const bool follows = limits_.drafter->follows();
  if (follows && !is_followed(s)) return false;
  if (!limits_.drafts_by_cost) return true;
  const bool every_step = !limits_.runs_ahead && !follows;
  return every_step || s.draft_history.due(step);
}

uint64_t Scheduler::draft_key(const Sequence& s) { return s.id() << 8 | static_cast<uint64_t>(s.choice()); }

// A step with d drafts gives up to d + 1 tokens, which must fit into the sequence. Rows beyond long_from would need
// other RoPE angles than the rest of the sequence.
int32_t Scheduler::draft_room(const Sequence& s, int64_t rows) const {
  int64_t most = std::min<int64_t>({rows, s.most_drafts(), limits_.draft_tokens, s.longest() - s.length() - 1});
  if (limits_.long_from > 0 && !s.prefix_key.long_rope) most = std::min<int64_t>(most, limits_.long_from - s.length());
  return static_cast<int32_t>(std::max<int64_t>(most, 0));
}

// Drafts of all generating sequences. They share the rows that decodes leave, or half of these rows while prompts wait.
// Each prompt keeps one row of logits.
void Scheduler::draft_tokens() {
  asks_.clear();
  drafting_.clear();
  Decodes decodes;
  for (auto& s : running_) {
    s->drop_drafts();
    if (!s->generating()) continue;
    ++decodes.rows;
    decodes.positions += s->length();
  }
  if (limits_.drafter == nullptr) return;
  const bool follows = limits_.drafter->follows();
  int64_t room = std::min(limits_.rows - decodes.rows, limits_.logit_rows - std::ssize(running_));
  if (decodes.rows < std::ssize(running_)) room /= 2;
  for (auto& s : running_) {
    const int32_t most = s->generating() && may_draft(*s, steps_) ? draft_room(*s, room) : 0;
    if (most == 0) continue;
    asks_.push_back({draft_key(*s), s->tokens(), draft_buffer().first(static_cast<size_t>(most)), most, {}});
    drafting_.push_back(s.get());
  }
  if (asks_.empty()) return;
  // A drafter whose passes take time drafts no more than the plan wants. One that follows needs pages for its drafts.
  const bool plan_first = follows || (limits_.drafts_by_cost && limits_.drafter->pass_us(1) > 0);
  if (!plan_first) limits_.drafter->draft_all(asks_);
  if (std::all_of(asks_.begin(), asks_.end(), [](const DraftAsk& ask) { return ask.given == 0; })) return;
  const auto lengths = draft_lengths(decodes, room);
  for (size_t i = 0; i < asks_.size(); ++i) {
    asks_[i].given = std::min(asks_[i].given, lengths[i]);
    if (follows) asks_[i].given = with_pages(*drafting_[i], asks_[i].given);
    asks_[i].pages = drafting_[i]->table().pages();
    asks_[i].draft = asks_[i].draft.first(static_cast<size_t>(asks_[i].given));
  }
  if (plan_first) {
    ask_for_branches();
    limits_.drafter->draft_all(asks_);
  }
  take_drafts();
}

// For the draft that is asked for next.
std::span<int32_t> Scheduler::draft_buffer() {
  return std::span(drafts_).subspan(asks_.size() * static_cast<size_t>(limits_.draft_tokens));
}

// The number of tokens of each draft that are worth their rows. The plan also has the number of its branches.
std::span<const int32_t> Scheduler::draft_lengths(const Decodes& decodes, int64_t room) {
  offers_.clear();
  for (size_t i = 0; i < asks_.size(); ++i) {
    MR_ASSERT(asks_[i].given >= 0 && asks_[i].given <= std::ssize(asks_[i].draft));
    const DraftHistory& history = drafting_[i]->draft_history;
    const auto branches = static_cast<int32_t>(alternatives(*drafting_[i]).size());
    offers_.push_back({asks_[i].given, history.chance(), branches, history.other_chances()});
  }
  if (!limits_.drafts_by_cost) return draft_plan_.share(offers_, room, branch_places());
  const auto step_us = [&](const DraftedRows& drafts) {
    // The first token of each draft comes from the pass that follows every step anyway.
    const int64_t longest = std::max<int64_t>(0, drafts.longest - (limits_.drafter->follows() ? 1 : 0));
    const double pass_us = limits_.drafter->pass_us(drafts.sequences + drafts.branches);
    return pacer_.verify_us(decodes, drafts) + static_cast<double>(longest) * pass_us;
  };
  return draft_plan_.choose(offers_, {decodes.rows, room, limits_.draft_margin, branch_places()}, step_us);
}

// Takes pages for so many drafts, without preemption. Returns the number that fits.
int32_t Scheduler::with_pages(Sequence& s, int32_t drafts) {
  if (drafts == 0 || take_pages(s, s.length() + drafts, 0)) return drafts;
  return std::clamp(s.table().capacity() - s.length(), 0, drafts);
}

// Drafts take pages without preemption.
void Scheduler::take_drafts() {
  for (size_t i = 0; i < asks_.size(); ++i) {
    Sequence& s = *drafting_[i];
    const auto drafts = asks_[i].draft.first(static_cast<size_t>(asks_[i].given));
    if (asks_[i].branch > 0) {
      s.set_branch(s.branches()[static_cast<size_t>(asks_[i].branch) - 1], drafts);
      continue;
    }
    s.set_drafts(drafts);
    if (s.drafted() == 0) continue;
    s.keep_drafts(with_pages(s, s.drafted()));
    if (s.drafted() > 0 && !take_checkpoint(s)) s.drop_drafts();
  }
}

// Copies the recurrent state, to which rejected drafts return. False: no slot is free, so there are no drafts.
bool Scheduler::take_checkpoint(Sequence& s) {
  if (!kv_.has_slots()) return true;
  if (!s.checkpoint) s.checkpoint = free_slot();
  if (!s.checkpoint) return false;
  kv_.copy_slot(s.slot.id(), s.checkpoint.id());
  s.checkpoint_tokens = s.computed();
  return true;
}

// Pages past the known tokens go back to the pool; the next step overwrites rejected rows in the last page. A slot has
// taken in the rejected rows too: rewind_slots() restores it before the next step.
void Scheduler::truncate(Sequence& s) {
  s.drop_drafts();
  s.table().truncate(s.length());
  s.slot_tokens = Sequence::kUnknownState;
}

// Back to the state before the last drafts. The accepted ones are computed again together with the next token. False:
// there is no checkpoint, or no page is free.
bool Scheduler::rewind(Sequence& s) {
  if (!s.checkpoint) return false;
  while (s.pages_in_tree * kv_.options().block_size > s.checkpoint_tokens) {
    if (!unshare_last_page(s)) return false;
  }
  kv_.copy_slot(s.checkpoint.id(), s.slot.id());
  s.slot_tokens = s.checkpoint_tokens;
  s.begin_at(s.checkpoint_tokens);
  return true;
}

// The rows of this page will be written again, and others may read the page in the tree.
bool Scheduler::unshare_last_page(Sequence& s) {
  if (!make_room(1)) return false;
  const int32_t page = *kv_.blocks().take();
  const auto index = static_cast<size_t>(s.pages_in_tree - 1);
  kv_.copy_page(s.table().pages()[index], page);
  s.table().replace(index, page);
  kv_.blocks().give_back(page);  // the table holds it now
  s.node = PrefixTree::before(s.node);
  --s.pages_in_tree;
  return true;
}

}  // namespace millrace
