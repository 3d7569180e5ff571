// The state of sequences: pages and slots that are found in the prefix tree, taken from the pools, and kept in the
// tree.
#include <algorithm>

#include "engine/scheduler.h"

namespace millrace {

PrefixTree::Node* Scheduler::node_of(const Sequence& sequence) {
  return sequence.node != nullptr ? sequence.node : tree_.root(sequence.prefix_key);
}

// Brings the state of a parked session that begins like the sequence back into the tree. Not if the sequence would have
// to wait for pages afterwards: its state might leave again meanwhile.
void Scheduler::unpark(Sequence& s, int32_t headroom) {
  if (parking_ == nullptr || !limits_.prefix_cache || s.request().kind != RequestKind::Generate) return;
  const auto wanted = s.tokens().first(static_cast<size_t>(s.first_wanted()));
  const auto found = parking_->find(s.prefix_key, wanted, s.request().parked);
  if (found.state == nullptr) return;
  PrefixTree::Node* root = tree_.root(s.prefix_key);
  const int32_t pages = tree_.known(root, wanted), block = kv_.options().block_size;
  if (found.tokens <= (kv_.has_slots() ? tree_.deepest_snapshot(root, wanted).tokens : pages)) return;
  if (kv_.blocks().free() + tree_.evictable() < s.table().pages_for(s.length()) + headroom + 1) return;
  if (!make_room(std::max(0, s.table().pages_for(found.tokens) - pages / block))) return;
  while (kv_.has_slots() && kv_.slots().free() < 3 && tree_.evict_snapshot()) {
  }
  parking_->restore(found);
}

// A lone prompt that was seen before resumes at the last boundary of its earlier chunks that the tree still has.
int32_t Scheduler::reuse_end(const Sequence& s) {
  const int32_t end = s.first_wanted();
  if (!limits_.prefix_cache || !limits_.same_chunks || !s.prefill.lone || s.generated() > 0) return end;
  const auto chunks = chunks_.find(s.tokens(), s.prefix_key);
  if (!chunks) return end;
  const int32_t last = std::min(chunks->last, end);
  if (kv_.has_slots()) return last;  // snapshots lie at boundaries
  const int32_t known = tree_.known(tree_.root(s.prefix_key), s.tokens().first(static_cast<size_t>(last)));
  if (known == last || known < chunks->first) return known;
  const auto rows = static_cast<int32_t>(limits_.rows);
  return chunks->first + (known - chunks->first) / rows * rows;
}

// The number of leading tokens whose state may come from the tree. Recurrent state exists only at snapshots.
int32_t Scheduler::reusable(const Sequence& sequence) {
  if (!limits_.prefix_cache) return 0;
  const int32_t end = sequence.prefill.reuse_end;
  if (!kv_.has_slots()) return end;
  const auto known = sequence.tokens().first(static_cast<size_t>(end));
  return tree_.deepest_snapshot(tree_.root(sequence.prefix_key), known).tokens;
}

// Where the tree has pages for more tokens than the snapshot: another prompt began with the same tokens, and a third
// may. 0: nowhere.
int32_t Scheduler::branch(const Sequence& s) {
  if (!kv_.has_slots() || !limits_.prefix_cache) return 0;
  const int32_t block = kv_.options().block_size;
  const auto own = s.tokens().first(static_cast<size_t>(s.prefill.reuse_end));
  const int32_t known = tree_.known(tree_.root(s.prefix_key), own) / block * block;
  return known >= s.computed() + 2 * block ? known : 0;
}

// A free slot, or the slot of the least recently used snapshot.
Slot Scheduler::free_slot() {
  Slot slot = kv_.slots().take();
  while (!slot && tree_.evict_snapshot()) slot = kv_.slots().take();
  return slot;
}

// False: running sequences hold all slots.
bool Scheduler::take_slot(Sequence& sequence) {
  if (!kv_.has_slots()) return true;
  reusable(sequence);  // marks its own snapshot as recently used, so that others are evicted first
  sequence.slot = free_slot();
  return static_cast<bool>(sequence.slot);
}

// Sets the slot to the state after the reused tokens. False: the snapshot was evicted to make room for pages.
bool Scheduler::restore_slot(Sequence& sequence) {
  if (!kv_.has_slots()) return true;
  const int32_t computed = sequence.computed();
  sequence.slot_tokens = computed;
  if (computed == 0) {
    kv_.clear_slot(sequence.slot.id());
    return true;
  }
  const auto known = sequence.tokens().first(static_cast<size_t>(computed));
  const auto snapshot = tree_.deepest_snapshot(tree_.root(sequence.prefix_key), known);
  if (snapshot.tokens != computed) return false;
  kv_.copy_slot(snapshot.slot, sequence.slot.id());
  return true;
}

bool Scheduler::begin_at_zero(Sequence& sequence, int32_t headroom) {
  sequence.table().clear();
  sequence.begin_at(0);
  sequence.node = nullptr;
  sequence.pages_in_tree = 0;
  return take_pages(sequence, sequence.length(), headroom) && restore_slot(sequence);
}

// Shares the full pages that the tree has for the sequence, as far as they may be reused.
void Scheduler::match(Sequence& sequence) {
  if (!limits_.prefix_cache) return;
  const auto block = static_cast<size_t>(kv_.options().block_size);
  const auto known = sequence.tokens().first(static_cast<size_t>(reusable(sequence)));
  for (size_t at = 0; at + block <= known.size(); at += block) {
    PrefixTree::Node* next = tree_.find(node_of(sequence), known.subspan(at, block));
    if (next == nullptr) break;
    sequence.node = next;
    sequence.table().share(PrefixTree::page(next));
    ++sequence.pages_in_tree;
  }
  sequence.begin_at(sequence.table().capacity());
}

// If the tree has the beginning of the next page, takes all pages of the sequence and continues in a copy of that page.
bool Scheduler::begin_inside_page(Sequence& sequence, int32_t headroom) {
  if (!limits_.prefix_cache) return false;
  const int32_t at = sequence.computed(), end = reusable(sequence);
  const int32_t most = std::min(end - at, kv_.options().block_size);
  if (most <= 0) return false;
  const auto wanted = sequence.tokens().subspan(static_cast<size_t>(at), static_cast<size_t>(most));
  const auto found = tree_.longest_beginning(node_of(sequence), wanted);
  if (found.tokens == 0) return false;
  kv_.blocks().share(found.page);  // protects the page from eviction
  const bool taken = take_pages(sequence, sequence.length(), headroom);
  if (taken) {
    kv_.copy_page(found.page, sequence.table().pages()[static_cast<size_t>(sequence.pages_in_tree)]);
    sequence.begin_at(at + found.tokens);
  }
  kv_.blocks().give_back(found.page);
  return taken;
}

bool Scheduler::take_pages(Sequence& sequence, int32_t tokens, int32_t headroom) {
  const auto held = static_cast<int32_t>(sequence.table().pages().size());
  return make_room(sequence.table().pages_for(tokens) - held + headroom) && sequence.table().reserve(tokens);
}

bool Scheduler::make_room(int32_t pages) {
  const int32_t missing = pages - kv_.blocks().free();
  if (missing <= 0) return true;
  if (tree_.evictable() < missing) return false;
  const int32_t freed = tree_.evict(missing);
  evicted_ += static_cast<uint64_t>(freed);
  return freed == missing;
}

void Scheduler::keep_full_pages(Sequence& sequence) {
  if (!limits_.prefix_cache) return;
  const int32_t block = kv_.options().block_size;
  while ((sequence.pages_in_tree + 1) * block <= sequence.computed()) {
    const auto index = static_cast<size_t>(sequence.pages_in_tree);
    const auto tokens = sequence.tokens().subspan(index * static_cast<size_t>(block), static_cast<size_t>(block));
    const int32_t own = sequence.table().pages()[index];
    sequence.node = tree_.insert(node_of(sequence), tokens, own);
    const int32_t kept = PrefixTree::page(sequence.node);
    if (kept != own) {  // another sequence computed the same page
      sequence.table().replace(index, kept);
      sequence.fresh.skip_to(static_cast<int32_t>(index + 1) * block);
    }
    ++sequence.pages_in_tree;
  }
}

// Computed state stays in the tree until its pages or its slot are needed elsewhere. If a step that was started ahead
// has taken in the last token, for example an end token, the state includes it.
void Scheduler::release(Sequence& sequence) {
  if (limits_.drafter != nullptr) limits_.drafter->forget(draft_key(sequence));
  if (sequence.slot && sequence.slot_tokens == sequence.length() && sequence.computed() == sequence.length() - 1)
    sequence.advance(1);
  keep_pages(sequence);
  if (sequence.slot_tokens == sequence.computed()) {
    give_snapshot(sequence, sequence.computed(), std::move(sequence.slot));
  } else {
    give_snapshot(sequence, sequence.checkpoint_tokens, std::move(sequence.checkpoint));
  }
  sequence.table().clear();
  sequence.begin_again();
  sequence.fresh = {};
}

void Scheduler::keep_pages(Sequence& sequence) {
  keep_full_pages(sequence);
  const int32_t kept = sequence.pages_in_tree * kv_.options().block_size;
  if (limits_.prefix_cache && sequence.computed() > kept) {
    const auto rest =
        sequence.tokens().subspan(static_cast<size_t>(kept), static_cast<size_t>(sequence.computed() - kept));
    tree_.insert_beginning(node_of(sequence), rest,
                           sequence.table().pages()[static_cast<size_t>(sequence.pages_in_tree)]);
  }
}

bool Scheduler::lacks_snapshot(Sequence& sequence, int32_t tokens) {
  if (!limits_.prefix_cache || tokens == 0) return false;
  const auto known = sequence.tokens().first(static_cast<size_t>(tokens));
  return tree_.deepest_snapshot(tree_.root(sequence.prefix_key), known).tokens != tokens;
}

// Keeps a copy of the recurrent state after the last computed token in the tree. A slot that is ahead of the computed
// tokens holds another state and is not kept.
void Scheduler::keep_snapshot(Sequence& sequence) {
  const int32_t computed = sequence.computed();
  if (!sequence.slot || sequence.slot_tokens != computed || !lacks_snapshot(sequence, computed)) return;
  Slot copy = free_slot();
  if (!copy) return;
  kv_.copy_slot(sequence.slot.id(), copy.id());
  give_snapshot(sequence, computed, std::move(copy));
}

// Gives the tree the state after `tokens` of the sequence, whose pages are in the tree already.
void Scheduler::give_snapshot(Sequence& sequence, int32_t tokens, Slot state) {
  if (!state || !lacks_snapshot(sequence, tokens)) return;
  const int32_t block = kv_.options().block_size;
  PrefixTree::Node* node = sequence.node;
  int32_t pages = sequence.pages_in_tree;
  for (; pages * block > tokens; --pages) node = PrefixTree::before(node);
  if (node == nullptr) node = tree_.root(sequence.prefix_key);
  const auto rest = sequence.tokens().subspan(static_cast<size_t>(pages * block));
  tree_.keep_snapshot(node, rest.first(static_cast<size_t>(tokens - pages * block)), std::move(state));
}

}  // namespace millrace
