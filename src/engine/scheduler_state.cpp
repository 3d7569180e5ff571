// The state of sequences: pages and slots that are found in the prefix tree, taken from the pools, and kept in the
// tree.
#include <algorithm>

#include "engine/scheduler.h"

namespace millrace {

PrefixTree::Node* Scheduler::node_of(const Sequence& sequence) {
  return sequence.node != nullptr ? sequence.node : tree_.root(sequence.prefix_key);
}

// The number of leading tokens whose state may come from the tree. Recurrent state exists only at snapshots.
int32_t Scheduler::reusable(const Sequence& sequence) {
  if (!limits_.prefix_cache) return 0;
  const int32_t end = sequence.first_wanted();
  if (!kv_.has_slots()) return end;
  const auto known = sequence.tokens().first(static_cast<size_t>(end));
  return tree_.deepest_snapshot(tree_.root(sequence.prefix_key), known).tokens;
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
    if (kept != own) sequence.table().replace(index, kept);  // another sequence computed the same page
    ++sequence.pages_in_tree;
  }
}

// Computed state stays in the tree until its pages or its slot are needed elsewhere.
void Scheduler::release(Sequence& sequence) {
  keep_pages(sequence);
  keep_snapshot(sequence, /*give_slot=*/true);
  sequence.table().clear();
  sequence.begin_again();
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

// Keeps the recurrent state after the last computed token in the tree: a copy, or the slot itself. A slot that is ahead
// of the computed tokens holds another state and is not kept.
void Scheduler::keep_snapshot(Sequence& sequence, bool give_slot) {
  const int32_t computed = sequence.computed();
  if (!sequence.slot || !limits_.prefix_cache || computed == 0 || sequence.slot_tokens != computed) return;
  const auto known = sequence.tokens().first(static_cast<size_t>(computed));
  if (tree_.deepest_snapshot(tree_.root(sequence.prefix_key), known).tokens == computed) return;
  Slot snapshot = give_slot ? std::move(sequence.slot) : free_slot();
  if (!snapshot) return;
  if (!give_slot) kv_.copy_slot(sequence.slot.id(), snapshot.id());
  const auto kept = static_cast<size_t>(sequence.pages_in_tree) * static_cast<size_t>(kv_.options().block_size);
  tree_.keep_snapshot(node_of(sequence), known.subspan(kept), std::move(snapshot));
}

}  // namespace millrace
