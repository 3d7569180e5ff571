#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace millrace {
namespace {

constexpr int32_t kShortPrompt = 1024;  // tokens to compute

}  // namespace

Scheduler::Scheduler(StateCache& kv, const SchedulerLimits& limits, StepPacer& pacer)
    : kv_(kv), tree_(kv.blocks(), kv.options().block_size), limits_(limits), pacer_(pacer) {
  running_.reserve(static_cast<size_t>(limits.sequences));
  prompts_.reserve(static_cast<size_t>(limits.sequences));
  draft_.resize(static_cast<size_t>(limits.draft_tokens));
}

void Scheduler::cancel(RequestId id, int32_t choice) {
  const auto is_it = [&](const Sequence& s) { return s.id() == id && (choice < 0 || s.choice() == choice); };
  // A sequence that computes the prompt for several choices continues as one of them.
  const auto lives_on = [&](Sequence& s) {
    auto& unborn = s.group().unborn;
    if (choice < 0) unborn.clear();
    std::erase(unborn, choice);
    if (!is_it(s) || unborn.empty()) return !is_it(s);
    s.become(unborn.front());
    unborn.erase(unborn.begin());
    return true;
  };
  const auto of_request = [&](const Sequence& s) { return s.id() == id; };
  waiting_.erase_if([&](Sequence& s) { return of_request(s) && !lives_on(s); });
  std::erase_if(running_, [&](const auto& s) {
    if (!of_request(*s) || lives_on(*s)) return false;
    release(*s);
    return true;
  });
}

void Scheduler::admit(double now) {
  requeue_grown();
  while (!waiting_.empty() && running_.size() < static_cast<size_t>(limits_.sequences)) {
    Sequence* next = waiting_.next(now);
    if (!place(*next, static_cast<int32_t>(running_.size())))
      return;  // later requests must not overtake it, or large prompts would starve
    running_.push_back(waiting_.take(next));
  }
}

// Takes a slot, and pages for all tokens of the sequence, some of them from the tree; or takes nothing. `headroom`
// pages stay free: each running sequence may soon need one, and would otherwise preempt the newly admitted sequence in
// the next step.
bool Scheduler::place(Sequence& sequence, int32_t headroom) {
  if (limits_.long_from > 0 && sequence.length() > limits_.long_from) sequence.prefix_key.long_rope = true;
  if (!take_slot(sequence)) return false;
  match(sequence);
  const bool has_pages = begin_inside_page(sequence, headroom) || take_pages(sequence, sequence.length(), headroom);
  if (!has_pages || !(restore_slot(sequence) || begin_at_zero(sequence, headroom))) {
    sequence.table().clear();
    sequence.begin_again();
    return false;
  }
  if (sequence.group().admitted) return true;
  sequence.group().admitted = true;
  prompt_tokens_ += static_cast<uint64_t>(sequence.prompt_length());
  count_cached(sequence, sequence.computed());
  return true;
}

void Scheduler::count_cached(Sequence& sequence, int32_t tokens) {
  if (sequence.group().restarted) return;  // the pages found may be its own
  sequence.group().cached_tokens += tokens;
  cached_tokens_ += static_cast<uint64_t>(tokens);
}

void Scheduler::advance(Sequence& sequence, int32_t rows) {
  sequence.advance(rows);
  if (sequence.pending().empty() && sequence.generated() == 0) {
    keep_pages(sequence);  // the whole prompt is computed: later prompts may begin with it
    keep_snapshot(sequence, /*give_slot=*/false);
  } else {
    keep_full_pages(sequence);
  }
}

void Scheduler::started(const Plan& plan) {
  for (const Part& part : plan.parts) part.sequence->slot_tokens += part.rows;
}

void Scheduler::retire() {
  std::erase_if(running_, [&](const auto& sequence) {
    if (!sequence->finished()) return false;
    release(*sequence);
    return true;
  });
}

// Sequences that grew past long_from: their keys have the wrong RoPE frequencies, so they are computed again.
void Scheduler::requeue_grown() {
  if (limits_.long_from == 0) return;
  for (size_t i = running_.size(); i-- > 0;) {
    if (!running_[i]->prefix_key.long_rope && running_[i]->length() > limits_.long_from) restart(i);
  }
}

// The least urgent sequence, of those the one admitted last. The first one admitted therefore always finishes.
size_t Scheduler::victim() const {
  size_t worst = 0;
  for (size_t i = 1; i < running_.size(); ++i) {
    if (running_[i]->priority() <= running_[worst]->priority()) worst = i;
  }
  return worst;
}

// Puts the sequence back into the queue. It will restart from the state that the tree still has.
void Scheduler::restart(size_t index) {
  running_[index]->group().restarted = true;
  release(*running_[index]);
  waiting_.push(std::move(running_[index]));
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Scheduler::make_room_for_decodes() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    if (!s.generating() || take_pages(s, s.length(), 0)) {
      ++i;
      continue;
    }
    const size_t loser = victim();
    ++preemptions_;
    restart(loser);
    if (loser < i) --i;
  }
}

// Recurrent state cannot drop rejected tokens, so such a sequence restarts at a snapshot, and waits if pages are
// missing. A sequence that runs alone always has enough pages.
void Scheduler::rewind_slots() {
  if (!kv_.has_slots()) return;
  for (size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    if (s.slot_tokens != s.computed()) {
      s.group().restarted = true;
      release(s);
      if (!place(s, 0)) {
        restart(i);
        continue;
      }
    }
    ++i;
  }
}

void Scheduler::compose(Plan& plan, StepBatch& batch) {
  batch.clear();
  plan.parts.clear();
  prompts_.clear();
  plan.decodes = {};
  plan.chunk_past = 0;
  logit_room_ = limits_.logit_rows;
  rewind_slots();
  make_room_for_decodes();
  draft_tokens();
  for (auto& s : running_) {
    if (!s->generating()) continue;
    const int32_t rows = 1 + s->drafted();
    plan.decodes.rows += rows;
    plan.decodes.positions += s->length();
    add_part(plan, batch, *s, rows);
  }
  share_chunk(plan.decodes, limits_.rows - plan.decodes.rows);
  for (const Share& share : prompts_) {
    if (share.rows == 0) continue;
    plan.chunk_past = std::max<int64_t>(plan.chunk_past, share.sequence->computed());
    add_part(plan, batch, *share.sequence, share.rows);
  }
  plan.chunk = batch.rows() - plan.decodes.rows;
}

bool Scheduler::compose_ahead(const Plan& now, Plan& next, StepBatch& batch) {
  const auto alive =
      std::count_if(now.parts.begin(), now.parts.end(), [](const Part& p) { return p.sequence != nullptr; });
  if (now.chunk > 0 || alive != std::ssize(running_)) return false;
  batch.clear();
  next.parts.clear();
  next.decodes = {};
  next.chunk = next.chunk_past = 0;
  for (size_t row = 0; row < now.parts.size(); ++row) {
    Sequence* s = now.parts[row].sequence;
    if (s == nullptr || s->length() + 1 >= s->longest()) continue;
    if (may_draft(*s)) return false;  // the drafter needs the token first
    const int32_t length = s->length() + 1;
    const bool grows_long = limits_.long_from > 0 && !s->prefix_key.long_rope && length > limits_.long_from;
    if (grows_long || !take_pages(*s, length, 0)) return false;
    ++next.decodes.rows;
    next.decodes.positions += length;
    const int32_t unknown = ~static_cast<int32_t>(row);
    batch.add({&unknown, 1}, length - 1, length, s->table().pages(), StepBatch::Logits::Last, s->slot.id());
    next.parts.push_back({s, 1, {0, 1}, {}});
  }
  return !next.parts.empty();
}

// Half of the chunk goes to the prompt admitted first, so that long prompts finish. The rest goes to the prompts with
// the fewest tokens left, so that short prompts do not wait for long ones. Only prompts of up to kShortPrompt tokens
// may use the larger chunk of PromptLength::Short.
void Scheduler::share_chunk(const Decodes& decodes, int64_t room) {
  int64_t past = 0;
  for (auto& s : running_) {
    if (s->generating()) continue;
    skip_known_pages(*s);
    if (computed_by_another(*s)) continue;
    past = std::max<int64_t>(past, s->computed());
    prompts_.push_back({s.get(), 0, s->length() - s->group().cached_tokens <= kShortPrompt});
  }
  if (prompts_.empty() || room <= 0) return;
  const bool any_short = std::any_of(prompts_.begin(), prompts_.end(), [](const Share& s) { return s.is_short; });
  int64_t for_long = pacer_.chunk(decodes, PromptLength::Long, past, room);
  int64_t left = any_short ? pacer_.chunk(decodes, PromptLength::Short, past, room) : for_long;
  const auto room_of = [&](const Share& share) { return share.is_short ? left : std::min(left, for_long); };
  const auto give = [&](Share& share, int64_t most) {
    const auto pending = static_cast<int64_t>(share.sequence->pending().size());
    const auto rows = static_cast<int32_t>(std::min(pending - share.rows, most));
    share.rows += rows;
    left -= rows;
    if (!share.is_short) for_long -= rows;
  };
  give(prompts_.front(), (room_of(prompts_.front()) + 1) / 2);
  std::sort(prompts_.begin(), prompts_.end(), [](const Share& a, const Share& b) {
    const auto key = [](const Sequence& s) { return std::tuple(s.pending().size(), s.id(), s.choice()); };
    return key(*a.sequence) < key(*b.sequence);
  });
  for (Share& share : prompts_) give(share, room_of(share));
}

// Skips pages that another sequence computed since this one was admitted.
void Scheduler::skip_known_pages(Sequence& s) {
  if (kv_.has_slots()) return;  // pages do not contain the recurrent state
  const int32_t block = kv_.options().block_size;
  while (limits_.prefix_cache && s.computed() == s.pages_in_tree * block && s.computed() + block <= s.first_wanted()) {
    const auto at = static_cast<size_t>(s.computed());
    PrefixTree::Node* next = tree_.find(node_of(s), s.tokens().subspan(at, static_cast<size_t>(block)));
    if (next == nullptr) return;
    s.table().replace(static_cast<size_t>(s.pages_in_tree), PrefixTree::page(next));
    s.node = next;
    ++s.pages_in_tree;
    s.advance(block);
    count_cached(s, block);
  }
}

// True if a prompt in this step computes the same next page: waiting for it saves the work.
bool Scheduler::computed_by_another(const Sequence& s) const {
  if (kv_.has_slots()) return false;
  const auto block = static_cast<size_t>(kv_.options().block_size);
  const int32_t page_begin = s.pages_in_tree * kv_.options().block_size;
  if (!limits_.prefix_cache || s.computed() != page_begin || page_begin + kv_.options().block_size > s.first_wanted())
    return false;
  const auto next = s.tokens().subspan(static_cast<size_t>(page_begin), block);
  return std::any_of(prompts_.begin(), prompts_.end(), [&](const Share& other) {
    const Sequence& o = *other.sequence;
    if (o.node != s.node || o.prefix_key != s.prefix_key || o.computed() < s.computed() ||
        o.length() < page_begin + static_cast<int32_t>(block))
      return false;
    return std::ranges::equal(next, o.tokens().subspan(static_cast<size_t>(page_begin), block));
  });
}

// Adds up to `rows` rows, as many as the remaining logit rows allow.
void Scheduler::add_part(Plan& plan, StepBatch& batch, Sequence& s, int32_t rows) {
  const auto chosen = [&](int32_t n) { return s.wanted_logits(n).size() + s.wanted_hidden(n).size(); };
  while (rows > 0 && chosen(rows) > logit_room_) rows -= chosen(rows) - static_cast<int32_t>(logit_room_);
  if (rows <= 0) return;
  const Part part{&s, rows, s.wanted_logits(rows), s.wanted_hidden(rows)};
  logit_room_ -= chosen(rows);
  batch.add(s.pending().first(static_cast<size_t>(rows)), s.computed(), s.length(), s.table().pages(), part.logits,
            part.hidden, s.slot.id(), s.drafted() > 0);
  plan.parts.push_back(part);
}

Sequence* Scheduler::fork(Sequence& parent, int32_t choice) {
  auto child = parent.fork(choice);
  const auto block = kv_.options().block_size;
  const auto full = static_cast<size_t>(parent.computed() / block);
  const auto pages = parent.table().pages();
  for (size_t i = 0; i < full; ++i) child->table().share(pages[i]);
  const bool room = running_.size() < static_cast<size_t>(limits_.sequences) && take_slot(*child) &&
                    take_pages(*child, parent.computed(), static_cast<int32_t>(running_.size()));
  if (!room) {
    child->table().clear();
    child->begin_again();
    child->group().restarted = true;
    waiting_.push(std::move(child));
    return nullptr;
  }
  if (parent.computed() % block != 0) kv_.copy_page(pages[full], child->table().pages()[full]);
  if (child->slot) {
    MR_ASSERT(parent.slot_tokens == parent.computed());
    kv_.copy_slot(parent.slot.id(), child->slot.id());
    child->slot_tokens = parent.slot_tokens;
  }
  running_.push_back(std::move(child));
  return running_.back().get();
}

}  // namespace millrace
