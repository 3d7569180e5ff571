#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {

Scheduler::Scheduler(StateCache& kv, const SchedulerLimits& limits, StepPacer& pacer)
    : kv_(kv), tree_(kv.blocks(), kv.options().block_size), limits_(limits), pacer_(pacer) {
  running_.reserve(static_cast<size_t>(limits.sequences));
  prompts_.reserve(static_cast<size_t>(limits.sequences));
  const auto sequences = static_cast<size_t>(limits.sequences);
  const auto places = static_cast<size_t>(std::max(limits.places, limits.sequences));
  drafting_.reserve(places);
  asks_.reserve(places);
  offers_.reserve(sequences);
  followed_.reserve(sequences);
  drafts_.resize(places * static_cast<size_t>(limits.draft_tokens));
  draft_plan_.reserve(sequences, static_cast<size_t>(limits.logit_rows));
}

Scheduler::~Scheduler() {
  if (limits_.drafter == nullptr) return;
  for (const auto& s : running_) limits_.drafter->forget(draft_key(*s));
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
  now_ = now;
  requeue_grown();
  if (running_.empty()) steps_ = 0;
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
  Sequence::Prefill& prefill = sequence.prefill;
  prefill.lone = running_.empty();
  unpark(sequence, headroom);
  prefill.reuse_end = reuse_end(sequence);
  if (!take_slot(sequence)) return false;
  match(sequence);
  const bool has_pages = begin_inside_page(sequence, headroom) || take_pages(sequence, sequence.length(), headroom);
  if (!has_pages || !(restore_slot(sequence) || begin_at_zero(sequence, headroom))) {
    sequence.table().clear();
    sequence.begin_again();
    return false;
  }
  prefill.begun_at = sequence.computed();
  prefill.branch = branch(sequence);
  if (prefill.due < 0) prefill.due = prompt_rows_ + sequence.length() - sequence.computed();
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
  sequence.fresh.rows += rows;
  const Sequence::Prefill& prefill = sequence.prefill;
  const bool whole_prompt = sequence.pending().empty() && sequence.generated() == 0;
  const bool snapshot_due = sequence.computed() == prefill.stop && !sequence.pending().empty();
  if (whole_prompt && prefill.lone && sequence.request().kind == RequestKind::Generate && !sequence.scores())
    chunks_.keep(sequence.tokens(), sequence.prefix_key, {prefill.begun_at, sequence.computed() - rows});
  if (whole_prompt || (kv_.has_slots() && snapshot_due)) {
    keep_pages(sequence);  // later prompts may begin with these tokens
    keep_snapshot(sequence);
  } else {
    keep_full_pages(sequence);
  }
}

void Scheduler::started(const Plan& plan) {
  for (const Part& part : plan.parts) part.sequence->slot_tokens += part.rows;
}

void Scheduler::failed(const Plan& plan) {
  for (const Part& part : plan.parts) {
    if (part.sequence == nullptr) continue;
    part.sequence->slot_tokens = Sequence::kUnknownState;
    part.sequence->drop_branches();
  }
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

// Recurrent state cannot drop rejected tokens: the sequence restarts at its checkpoint or at a snapshot, and waits if
// pages are missing. A sequence that runs alone always has enough pages.
void Scheduler::rewind_slots() {
  if (!kv_.has_slots()) return;
  for (size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    if (s.slot_tokens != s.computed() && !rewind(s)) {
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
  ++steps_;
  for (auto& s : running_) s->drop_branches();  // of a step that threw
  rewind_slots();
  make_room_for_decodes();
  draft_tokens();
  for (auto& s : running_) {
    if (!s->generating()) continue;
    const int32_t rows = 1 + s->drafted();
    plan.decodes.rows += rows + s->branch_rows();
    plan.decodes.positions += s->length();
    add_part(plan, batch, *s, rows);
  }
  if (limits_.whole_prompts) {
    share_whole(limits_.rows);
  } else {
    share_chunk(plan.decodes, limits_.rows - plan.decodes.rows);
  }
  for (const Share& share : prompts_) {
    if (share.rows == 0) continue;
    plan.chunk_past = std::max<int64_t>(plan.chunk_past, share.sequence->computed());
    add_part(plan, batch, *share.sequence, share.rows);
  }
  plan.chunk = batch.rows() - plan.decodes.rows;
  prompt_rows_ += plan.chunk;
  if (plan.parts.size() == 1) return;
  for (const Part& part : plan.parts) part.sequence->prefill.lone = false;
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
    // The drafter needs the token first, or the hidden states of this step.
    if (is_followed(*s) || may_draft(*s, steps_ + 1)) return false;
    const int32_t length = s->length() + 1;
    const bool grows_long = limits_.long_from > 0 && !s->prefix_key.long_rope && length > limits_.long_from;
    if (grows_long || !take_pages(*s, length, 0)) return false;
    ++next.decodes.rows;
    next.decodes.positions += length;
    const int32_t unknown = ~static_cast<int32_t>(row);
    batch.add({&unknown, 1}, length - 1, length, s->table().pages(), StepBatch::Logits::Last, s->slot.id(),
              s->adapter());
    next.parts.push_back({s, 1, {0, 1}, {}});
    s->fresh = {};  // the next step overwrites the hidden states of this one
  }
  if (next.parts.empty()) return false;
  ++steps_;
  return true;
}

// Adds up to `rows` rows, as many as the remaining logit rows allow.
void Scheduler::add_part(Plan& plan, StepBatch& batch, Sequence& s, int32_t rows) {
  const auto chosen = [&](int32_t n) { return s.wanted_logits(n).size() + s.wanted_hidden(n).size(); };
  while (rows > 0 && chosen(rows) > logit_room_) rows -= chosen(rows) - static_cast<int32_t>(logit_room_);
  if (rows <= 0) return;
  Part part{&s, rows, s.wanted_logits(rows), s.wanted_hidden(rows)};
  logit_room_ -= chosen(rows) + s.branch_rows();
  s.fresh = {static_cast<int32_t>(batch.rows()), s.computed(), 0, s.generating()};
  batch.add(s.pending().first(static_cast<size_t>(rows)), s.computed(), s.length(), s.table().pages(), part.logits,
            part.hidden, s.slot.id(), s.drafted() > 0, s.request().second, s.adapter());
  add_branches(part, batch);
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
