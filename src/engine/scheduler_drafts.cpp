// The drafts of a step: how many tokens of each sequence, and the removal of rejected rows.
#include <algorithm>

#include "base/error.h"
#include "engine/scheduler.h"

namespace millrace {

bool Scheduler::may_draft(const Sequence& s) const { return limits_.drafter != nullptr && s.most_drafts() > 0; }

// A step with d drafts gives up to d + 1 tokens, which must fit into the sequence. Rows beyond long_from would need
// other RoPE angles than the rest of the sequence.
int32_t Scheduler::draft_room(const Sequence& s, int64_t rows) const {
  int64_t most = std::min<int64_t>({rows, s.most_drafts(), limits_.draft_tokens, s.longest() - s.length() - 1});
  if (limits_.long_from > 0 && !s.prefix_key.long_rope) most = std::min<int64_t>(most, limits_.long_from - s.length());
  return static_cast<int32_t>(std::max<int64_t>(most, 0));
}

// Asks the drafter for every generating sequence. Drafts share the rows that decodes leave evenly, or half of these
// rows while prompts wait. Each prompt keeps one row of logits. Drafts never preempt a sequence.
void Scheduler::draft_tokens() {
  if (limits_.drafter == nullptr) return;
  const auto drafts = [&](const auto& s) { return s->generating() && may_draft(*s); };
  const auto generating =
      std::count_if(running_.begin(), running_.end(), [](const auto& s) { return s->generating(); });
  int64_t left = std::count_if(running_.begin(), running_.end(), drafts);
  int64_t room = std::min(limits_.rows - generating, limits_.logit_rows - std::ssize(running_));
  if (generating < std::ssize(running_)) room /= 2;
  for (auto& s : running_) {
    s->drop_drafts();
    if (!drafts(s)) continue;
    const int32_t most = draft_room(*s, room / left--);
    if (most == 0 || !take_checkpoint(*s)) continue;
    const int32_t given = limits_.drafter->draft(s->tokens(), std::span(draft_).first(static_cast<size_t>(most)));
    MR_ASSERT(given >= 0 && given <= most);
    s->set_drafts(std::span(draft_).first(static_cast<size_t>(given)));
    const int32_t pages_for = s->length() + s->drafted();
    if (!take_pages(*s, pages_for, 0)) s->keep_drafts(s->table().capacity() - s->length());
    room -= s->drafted();
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
