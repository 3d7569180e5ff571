// Copies cached pages and snapshots of recurrent state out of the state cache and back into another one, so that a
// later process need not compute the beginning of a prompt again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"
#include "cache/state_cache.h"
#include "hardware/device.h"

namespace millrace {

struct SavedPrefix {
  int32_t tokens = 0;  // whose state is saved
  // [page][layer]: keys, then values. Behind the pages of a model with recurrent state: snapshots, each the number of
  // tokens it has taken in (int32, little endian) and the record of its slot.
  std::vector<std::byte> pages;
  std::vector<int32_t> stops;  // numbers of tokens at which a sequence can resume; empty: at any

  // Of `common` first tokens: how many need not be computed again.
  int32_t resumes_at(int32_t common) const;
};

size_t saved_page_bytes(const StateCache& state);

// The pages that the tree has for the longest beginning of `tokens`. A sequence with recurrent state can resume only at
// a snapshot: the pages end at the deepest one. The snapshot before it is saved, too, because the next prompt of a chat
// may leave out the end of the last answer (its reasoning).
SavedPrefix save_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens);

// The same for pages that the caller has found. Without a snapshot the state of a recurrent model is empty.
SavedPrefix save_path(const StateCache& state, Device& device, const PrefixTree::Path& path);

// Puts pages of a state cache of the same layout into the tree; `tokens` are those of the pages. Returns the number of
// restored tokens, which is smaller if free pages run out. Ignores bytes that do not fit the number of tokens. `most`:
// only so many of the first tokens are wanted.
int32_t restore_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens,
                       std::span<const std::byte> pages, const PrefixKey& key = {}, int32_t most = INT32_MAX);

}  // namespace millrace
